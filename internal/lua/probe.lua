-- Purpose: reports which commands of the undo are denied to this user or missing on this server, and whether RESTORE accepts
--          what DUMP returns. Before 7.0 a script cannot ask the server, so this one tries the commands on the void key, in
--          forms that change nothing, or nothing that stays.
-- KEYS:    1  void
-- ARGV:    none
-- Reply:   1  restores  2 any key can be restored, 1 only strings
--          2- command   each command that the undo lacks
--          or an error of a server that accepts no writes, which reports nothing about the undo
-- Bound:   constant
-- Redis:   6.0

local VOID = @VOID
local VERSION = redis.REDIS_VERSION_NUM or 0

-- Each command of _undo.lua and of compiled undos, in a form that changes nothing while the key does not exist.
local needed = {
  {'GETRANGE', VOID, '0', '1'}, {'STRLEN', VOID}, {'EXISTS', VOID}, {'TYPE', VOID}, {'HMGET', VOID, 'f'}, {'SISMEMBER', VOID, 'm'},
  {'ZSCORE', VOID, 'm'}, {'LLEN', VOID}, {'XLEN', VOID}, {VERSION >= 0x070000 and 'PEXPIRETIME' or 'PTTL', VOID},
  {'UNLINK', VOID}, {'SET', VOID, 'v', 'XX'}, {'HDEL', VOID, 'f'}, {'SREM', VOID, 'm'}, {'ZREM', VOID, 'm'},
  {'ZADD', VOID, 'XX', '1', 'm'}, {'LTRIM', VOID, '0', '0'}, {'XDEL', VOID, '1-1'}, {'PERSIST', VOID},
  {'PEXPIREAT', VOID, '1'},
}
local fields_expire = VERSION >= 0x070400 or (redis.VALKEY_VERSION_NUM or 0) >= 0x090000
if fields_expire then
  needed[#needed + 1] = {'HPEXPIRETIME', VOID, 'FIELDS', '1', 'f'}
  needed[#needed + 1] = {'HPEXPIREAT', VOID, '1', 'FIELDS', '1', 'f'}
end

local sick -- the error of a server that takes no writes

local function allowed(command)
  if redis.acl_check_cmd then
    local ok, may = pcall(redis.acl_check_cmd, unpack(command)) -- it raises an error if there is no such command
    return ok and may
  end
  local reply = redis.pcall(unpack(command))
  if type(reply) ~= 'table' or not reply.err then return true end
  for _, word in ipairs({'READONLY', 'MISCONF'}) do
    if string.find(reply.err, word, 1, true) then sick = word .. ' the server takes no writes' end
  end
  return false
end

local reply = {'1'}
for _, command in ipairs(needed) do
  if not allowed(command) then reply[#reply + 1] = command[1] end
end

-- HSET and SADD change something in every form. They are tried last, and only if UNLINK can undo them.
local restores
if redis.acl_check_cmd then
  if not allowed({'HSET', VOID, 'f', 'v'}) then reply[#reply + 1] = 'HSET' end
  if not allowed({'SADD', VOID, 'm'}) then reply[#reply + 1] = 'SADD' end
  restores = allowed({'DUMP', VOID}) and allowed({'RESTORE', VOID, '0', '', 'REPLACE', 'ABSTTL'})
elseif #reply == 1 then
  if not allowed({'SADD', VOID, 'm'}) then reply[#reply + 1] = 'SADD' end
  redis.call('UNLINK', VOID)
  if not allowed({'HSET', VOID, 'f', 'v'}) then reply[#reply + 1] = 'HSET' end
  local dump = redis.pcall('DUMP', VOID)
  restores = type(dump) == 'string' and allowed({'RESTORE', VOID, '0', dump, 'REPLACE', 'ABSTTL'})
  redis.call('UNLINK', VOID)
end
if sick then return {err = sick} end
if restores then reply[1] = '2' end
return reply
