-- Purpose: the undo of a transaction. Before a command writes, remember() reads the old values and pushes the
-- commands that restore them; rollback() runs those in reverse. Expects now (ms), UNDO_BYTES, and ARGV[2]: '2' where
-- the server takes RESTORE of what DUMP gave; else only strings and keys that do not exist are restored whole.
--
-- A command comes with a head: its undo class (one letter), a digit, and its number of arguments.
--   k  a string that is replaced       i  a string that is changed     K  strings, as pairs
--   h  hash fields, every second       H  hash fields that go
--   s  set members that come           S  set members that go
--   z  members, every second, from the digit on (0: after the options) Z  members that go
--   g  members, every third, from the digit on (0: after the options)
--   l  pushed on the left              r  pushed on the right
--   t  an expiry                       x  XADD with the id '*', among such at the transaction's end
--   d  anything, by DUMP: as many keys as the digit says; D  all arguments; m  those at the positions that follow
--      the head, each after a space: m05 2 3
--
-- A script makes its functions anew at each run, and one costs as much as a short call: here stand those that most
-- transactions need; those of _undo_more.lua are made by undos(), at its first call.

local VERSION = redis.REDIS_VERSION_NUM or 0
local FIELDS_EXPIRE = VERSION >= 0x070400 or (redis.VALKEY_VERSION_NUM or 0) >= 0x090000

local undo, depth = {}, 0
local dumped  -- the keys that are kept whole already: nothing that happens to them later needs an undo
local streams -- the XADDs at the end: the lengths of their keys, and where the last of them stands
local added   -- the inverse of an XADD, which lacks the id

local function push(command)
  depth = depth + 1
  undo[depth] = command
end

-- Keeps the string of a key that is changed, or replaced.
local function push_string(key, replaced)
  if dumped and dumped[key] then return end
  local old = redis.pcall('GETRANGE', key, '0', UNDO_BYTES) -- one byte more than is kept
  if type(old) == 'table' then -- another type: SET replaces it, all others fail by themselves
    return undos().unread(old) or replaced and undos().push_whole(key) or nil
  elseif #old > UNDO_BYTES then
    return undos().too_large
  elseif old == '' and redis.call('EXISTS', key) == 0 then
    push({'UNLINK', key})
  elseif replaced then
    if redis.call('PTTL', key) >= 0 then undos().push_expiry(key) end
    push({'SET', key, old})
  else
    push({'SET', key, old, 'KEEPTTL'})
  end
end

-- Keeps the expiry of single fields, where the server knows that: HSET and HDEL end it. Was: HSET, key, field, value ….
local function push_field_expiries(key, was)
  local ask = {'HPEXPIRETIME', key, 'FIELDS', #was / 2 - 1}
  for i = 3, #was, 2 do ask[#ask + 1] = was[i] end
  local times = redis.pcall(unpack(ask))
  if times.err then return 'cannot be undone on this server: ' .. times.err end
  for i, at in ipairs(times) do
    if at >= 0 then push({'HPEXPIREAT', key, string.format('%.0f', at), 'FIELDS', 1, ask[i + 4]}) end
  end
end

-- Keeps the fields of a hash that stand at every step-th place of first .. last.
local function push_fields(key, v, first, last, step)
  if dumped and dumped[key] then return end
  local ask = {'HMGET', key}
  for i = first, last, step do ask[#ask + 1] = v[i] end
  local old = redis.pcall(unpack(ask))
  if old.err then return undos().unread(old) end
  local came, was, size = {'HDEL', key}, {'HSET', key}, 0
  for i = 1, #ask - 2 do
    if old[i] then
      was[#was + 1], was[#was + 2] = ask[i + 2], old[i]
      size = size + #old[i]
    else
      came[#came + 1] = ask[i + 2]
    end
  end
  if size > UNDO_BYTES then return undos().too_large end
  if #came > 2 then push(came) end
  if #was == 2 then return end
  local why = FIELDS_EXPIRE and push_field_expiries(key, was)
  if #was > 5000 then undos().push_many(was) else push(was) end -- runs before HDEL: an empty hash loses its expiry
  return why or nil
end

-- Leaves the undo of the command whose arguments stand at first .. last of v. Returns why it cannot be undone (and
-- how many commands ahead stands the one it speaks of), or nil. Where the read of the old value meets the wrong type
-- the command will too, and change nothing.
local function remember(head, v, first, last)
  local class, key, why, ahead = string.sub(head, 1, 1), v[first + 1], nil, nil
  if class == '-' then
    return
  elseif class == 'h' then
    why = push_fields(key, v, first + 2, last, 2)
  elseif class == 'i' then
    why = push_string(key, false)
  elseif class == 'k' then
    why = push_string(key, true)
  else
    why, ahead = undos().push_other(class, head, v, first, last, key)
  end
  if why then return undos().excuse(why, ahead, v, first, last) end
end
