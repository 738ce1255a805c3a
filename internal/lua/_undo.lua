-- Purpose: the undo of a transaction. Before a command writes, remember() reads the old values. It appends to undo (see
-- _events.lua) the commands that restore them, or the fields of a hash as they were read. rollback() runs them in reverse.
--
-- undo also has these fields:
--   dumped   the keys that are kept whole already, whatever happens to them later
--   streams  of the XADDs at the end: the lengths of their keys, and where the last of them stands
--   added    the inverse of an XADD that has not run yet, which lacks the id
--   strings  true if the server does not take RESTORE of what DUMP returned; then only strings and keys that do not exist
--            are restored whole
--
-- A command comes with its undo class, a letter, and a digit:
--   k  a string that is replaced
--   i  the string of the first key, which is changed (digit 1: the command reads other keys, too)
--   K  strings, as pairs
--   h  hash fields, every second argument
--   H  hash fields that are removed
--   s  set members that are added
--   S  set members that are removed
--   z  sorted set members, every second argument from the digit on (0: after the options)
--   g  sorted set members, every third argument from the digit on (0: after the options)
--   Z  sorted set members that are removed
--   l  elements pushed on the left
--   r  elements pushed on the right
--   t  an expiry
--   x  XADD with the id '*', among such commands at the end of the transaction
--   d  anything, by DUMP: as many keys as the digit says
--   D  anything, by DUMP: all arguments are keys
--   m  anything, by DUMP: the keys at the positions in the argument before the command's name, as in '2 3'
--   p  a procedure, see _procedure.lua
--   -  nothing, because the command changes nothing
--
-- A script makes its functions anew at each run. A function costs as much as a short call, and each local that it uses half
-- of that. So this file has the functions that most transactions need, and undos() makes those of _undo_rare.lua at its
-- first call.
--#needs _events undos()
--#defines push_string push_fields remember

-- Leaves the undo of a command that changes or replaces the string of a key.
local function push_string(key, replaced)
  if undo.dumped and undo.dumped[key] then return end
  local old = redis.pcall('GETRANGE', key, '0', @UNDO_BYTES) -- one byte more than is kept
  if type(old) == 'table' then -- another type: SET replaces it, all others fail by themselves
    return undos().unread(old) or replaced and undos().push_whole(key) or nil
  elseif #old > @UNDO_BYTES then
    return undos().too_large
  elseif old == '' and redis.call('EXISTS', key) == 0 then
    undo[#undo + 1] = {'UNLINK', key}
  elseif replaced then
    if redis.call('PTTL', key) >= 0 then undos().push_expiry(key) end
    undo[#undo + 1] = {'SET', key, old}
  else
    undo[#undo + 1] = {'SET', key, old, 'KEEPTTL'}
  end
end

-- Keeps the expiry of single fields, because HSET and HDEL end it.
local function keep_expiries(ask, old)
  local count = #ask - 2
  local times = redis.pcall('HPEXPIRETIME', ask[2], 'FIELDS', count, unpack(ask, 3, count + 2))
  if times.err then return 'cannot be undone on this server: ' .. times.err end
  old.times = times
end

-- Keeps the fields of a hash at every step-th of args[first .. last].
local function push_fields(key, args, first, last, step)
  if undo.dumped and undo.dumped[key] then return end
  local ask, length = {'HMGET', key, nil, nil, nil, nil, nil, nil}, 2
  for i = first, last, step do
    length = length + 1
    ask[length] = args[i]
  end
  local old, size = redis.pcall(unpack(ask, 1, length)), nil
  if old.err then return undos().unread(old) end
  for i = 1, length - 2 do
    if old[i] then size = (size or 0) + #old[i] end
  end
  undo[#undo + 1] = {ask, old}
  if not size then return end
  if size > @UNDO_BYTES then return undos().too_large end
  if (redis.REDIS_VERSION_NUM or 0) >= 0x070400 or (redis.VALKEY_VERSION_NUM or 0) >= 0x090000 then -- fields expire
    return keep_expiries(ask, old)
  end
end

-- Leaves the undo of the command args[first .. last], which has this index in the plan, if there is a plan. Returns nil, or why
-- it cannot be undone, and how many commands ahead the command is that the reason is about. If the read of the old value
-- meets the wrong type, the command will meet it too and change nothing.
local function remember(class, digit, args, first, last, plan, index)
  local kept, why, ahead = #undo, nil, nil
  if class == @HASH_FIELDS then
    why = push_fields(args[first + 1], args, first + 2, last, 2)
  elseif class == @CHANGED_STRING then
    why = push_string(args[first + 1], false)
  elseif class == @REPLACED_STRING then
    why = push_string(args[first + 1], true)
  elseif class ~= @NO_UNDO then
    why, ahead = undos().push_other(class, digit, args, first, last, plan, index)
  end
  if not why then return end
  why, ahead = undos().excuse(why, ahead, class, args, first, last, plan, index)
  for i = why and #undo or 0, kept + 1, -1 do undo[i] = nil end -- of a command that does not run there is nothing to undo
  return why, ahead
end
