-- Purpose: lets a script that frees memory write to a server at maxmemory. The server checks the limit before each write of a
-- script until the script has called a command that never needs memory. It does not check the writes after that call. The
-- void key never exists, so the call removes nothing and replicates nothing.
--
-- A script calls this before its first write, unless that write is itself a removal such as ZREM, HDEL, XDEL or UNLINK.
--#defines write_though_full

-- It is a pcall, so that a void key of a wrong type stops nothing.
local function write_though_full() redis.pcall('ZREM', @VOID, '') end
