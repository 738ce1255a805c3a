-- Purpose: the undo of a transaction. Before a command writes, remember() reads the old values and leaves in undo (see
-- _events.lua) the commands that restore them, or the fields of a hash as they were read; rollback() runs those in
-- reverse. Beside them undo holds dumped, the keys that are kept whole already, whatever happens to them later; streams:
-- of the XADDs at the end, the lengths of their keys and where the last of them stands; and added, the inverse of an
-- XADD, which lacks the id. undo.strings is set
-- where the server does not take RESTORE of what DUMP gave: then only strings and keys that do not exist are restored
-- whole.
--
-- A command comes with its undo class, a letter, and a digit:
--   k  a string that is replaced       i  a string that is changed     K  strings, as pairs
--   h  hash fields, every second       H  hash fields that go
--   s  set members that come           S  set members that go
--   z  members, every second, from the digit on (0: after the options) Z  members that go
--   g  members, every third, from the digit on (0: after the options)
--   l  pushed on the left              r  pushed on the right
--   t  an expiry                       x  XADD with the id '*', among such at the transaction's end
--   d  anything, by DUMP: as many keys as the digit says; D  all arguments; m  those at the positions that stand before
--      the command's name: '2 3'
--
-- A script makes its functions anew at each run, and one costs as much as a short call, each local that it uses half of
-- that: here stand those that most transactions need; those of _undo_rare.lua are made by undos(), at its first call.
--#needs _events undos()
--#defines push_string push_fields remember

-- Keeps the string of a key that is changed, or replaced.
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

-- Keeps the expiry of single fields, where the server knows that: HSET and HDEL end it.
local function keep_expiries(ask, old)
  local n = #ask - 2
  local times = redis.pcall('HPEXPIRETIME', ask[2], 'FIELDS', n, unpack(ask, 3, n + 2))
  if times.err then return 'cannot be undone on this server: ' .. times.err end
  old.times = times
end

-- Keeps the fields of a hash that stand at every step-th place of first .. last.
local function push_fields(key, v, first, last, step)
  if undo.dumped and undo.dumped[key] then return end
  local ask, n = {'HMGET', key, nil, nil, nil, nil, nil, nil}, 2
  for i = first, last, step do
    n = n + 1
    ask[n] = v[i]
  end
  local old, size = redis.pcall(unpack(ask, 1, n)), nil
  if old.err then return undos().unread(old) end
  for i = 1, n - 2 do
    if old[i] then size = (size or 0) + #old[i] end
  end
  undo[#undo + 1] = {ask, old}
  if not size then return end
  if size > @UNDO_BYTES then return undos().too_large end
  if (redis.REDIS_VERSION_NUM or 0) >= 0x070400 or (redis.VALKEY_VERSION_NUM or 0) >= 0x090000 then -- fields expire
    return keep_expiries(ask, old)
  end
end

-- Leaves the undo of a command whose arguments stand at first .. last of v, and which is the i-th of the plan, if it
-- stands in one. Returns why it cannot be undone (and how many commands ahead stands the one it speaks of), or nil.
-- Where the read of the old value meets the wrong type the command will too, and change nothing.
local function remember(class, digit, v, first, last, plan, i)
  local why, ahead
  if class == @HASH_FIELDS then
    why = push_fields(v[first + 1], v, first + 2, last, 2)
  elseif class == @CHANGED_STRING then
    why = push_string(v[first + 1], false)
  elseif class == @REPLACED_STRING then
    why = push_string(v[first + 1], true)
  elseif class ~= @NO_UNDO then
    why, ahead = undos().push_other(class, digit, v, first, last, plan, i)
  end
  if why then return undos().excuse(why, ahead, class, v, first, last, plan, i) end
end
