-- Purpose: lets a script that frees memory write to a server at maxmemory. The server checks the limit before each write of
-- a script until the script has called one that never needs memory; it does not check the writes after that one. Expects
-- KEYS[1] to be the void key, which never exists: the call removes nothing and replicates nothing.
--
-- A script calls this before its first write, unless that write is itself a removal such as ZREM, HDEL, XDEL or UNLINK.

-- It is a pcall, so that a void key of a wrong type stops nothing.
local function write_though_full() redis.pcall('ZREM', KEYS[1], '') end
