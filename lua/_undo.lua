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
-- A script makes its functions anew at each run, and one costs as much as a short call: the less common ones stand
-- inside push_other.

local RESTORES, VERSION = ARGV[2] == '2', redis.REDIS_VERSION_NUM or 0
local FIELDS_EXPIRE = VERSION >= 0x070400 or (redis.VALKEY_VERSION_NUM or 0) >= 0x090000
local TOO_LARGE = 'cannot be undone: it takes more than ' .. UNDO_BYTES .. ' bytes to keep; make it the last command'

local undo, depth = {}, 0
local dumped  -- the keys that are kept whole already: nothing that happens to them later needs an undo
local streams -- the XADDs at the end: the lengths of their keys, and where the last of them stands
local added   -- the inverse of an XADD, which lacks the id

local function push(command)
  if depth == 0 then dumped = nil end -- another transaction
  depth = depth + 1
  undo[depth] = command
end

-- Pushes one command on a key, in pieces: unpack takes 5,115 values on every server.
local function push_many(name, key, values)
  for i = 1, #values, 4000 do push({name, key, unpack(values, i, math.min(#values, i + 3999))}) end
end

-- The time a key expires at (ms), nil for never; and -2 where it does not exist. PTTL is 0 for a key that expires
-- while the script runs, which RESTORE would take for never.
local function expiry(key)
  local left = redis.call(VERSION >= 0x070000 and 'PEXPIRETIME' or 'PTTL', key)
  if left < 0 then return nil, left end
  return string.format('%.0f', VERSION >= 0x070000 and left or now + math.max(1, left))
end

-- Keeps the expiry of a key that the command, or its undo, may empty. Pushed first: restored last.
local function push_expiry(key)
  local at = expiry(key)
  if at then push({'PEXPIREAT', key, at}) end
end

-- Why a command whose old value could not be read cannot be undone; nil where it meets the wrong type, as the read
-- did, and so changes nothing.
local function unread(reply)
  if not string.find(reply.err, 'WRONGTYPE', 1, true) then return 'cannot be undone on this server: ' .. reply.err end
end

local push_string

-- The less common classes. Returns why the command cannot be undone, or nil.
local function push_other(class, head, v, first, last, key)
  local function push_dump(key)
    if dumped and dumped[key] and depth > 0 then return end
    local kind = RESTORES or redis.call('TYPE', key).ok
    if kind == 'string' then return push_string(key, true) end
    if kind ~= true and kind ~= 'none' then
      return 'cannot be undone on this server: ' .. key .. ' is a ' .. kind .. ', and DUMP or RESTORE is denied or '
        .. 'knows strings only; grant +dump +restore, or make it the last command'
    end
    local size = RESTORES and redis.pcall('MEMORY', 'USAGE', key) -- an error where it is denied
    if type(size) == 'number' and size > UNDO_BYTES then return TOO_LARGE end
    local old = RESTORES and redis.pcall('DUMP', key)
    if not old then
      push({'UNLINK', key})
    elseif type(old) == 'table' then
      return 'cannot be undone on this server: ' .. old.err
    elseif #old > UNDO_BYTES then
      return TOO_LARGE
    else
      push({'RESTORE', key, expiry(key) or '0', old, 'REPLACE', 'ABSTTL'})
    end
    dumped = dumped or {}
    dumped[key] = true
  end

  local function push_dumps(from, to)
    for i = from, to do
      local why = push_dump(v[i])
      if why then return why end
    end
  end

  local function push_members(key, first, last, gone)
    local inverse = {}
    for i = first, last do
      local found = redis.pcall('SISMEMBER', key, v[i])
      if type(found) == 'table' then return unread(found) end
      if (found == 1) == gone then inverse[#inverse + 1] = v[i] end
    end
    push_many(gone and 'SADD' or 'SREM', key, inverse)
  end

  local function push_scores(key, at, step)
    if at == first then -- not told
      at = first + 2
      while string.find(' NX XX GT LT CH INCR ', ' ' .. string.upper(v[at] or '-') .. ' ', 1, true) do at = at + 1 end
      at = at + step - 1
    end
    local came, was = {}, {}
    for i = at, last, step do
      local score = redis.pcall('ZSCORE', key, v[i])
      if not score then
        came[#came + 1] = v[i]
      elseif type(score) == 'table' then
        return unread(score)
      else
        was[#was + 1], was[#was + 2] = score, v[i]
      end
    end
    push_many('ZREM', key, came)
    push_many('ZADD', key, was)
  end

  local function push_list(key, left)
    local length = redis.pcall('LLEN', key)
    if type(length) == 'table' then return unread(length) end
    if length == 0 then
      push({'UNLINK', key})
    else
      push({'LTRIM', key, left and -length or 0, left and -1 or length - 1})
    end
  end

  local function push_ttl(key, name, amount)
    local unit = ({EXPIRE = 1000, PEXPIRE = 1, EXPIREAT = 1000, PEXPIREAT = 1})[name]
    if unit then
      local due = (tonumber(amount) or 0) * unit
      if string.sub(name, -2) ~= 'AT' then due = due + now end
      if due <= now + 1000 then return push_dump(key) end -- an expiry in the past deletes
    end
    local at, none = expiry(key)
    if at then
      push({'PEXPIREAT', key, at})
    elseif none == -1 then
      push({'PERSIST', key})
    end
  end

  -- An XADD is undone by the id it was given. Before the first of those at the end runs, a look at all their keys:
  -- none of them fails then, but for what an ACL says of single keys.
  local function push_added(key)
    if not streams or first > streams.last then
      local lengths = {}
      streams = {last = first, lengths = lengths}
      local q, ahead = first - 1, 0
      while v[q] and string.sub(v[q], 1, 1) == 'x' do
        local stream = v[q + 2]
        local length = redis.pcall('XLEN', stream)
        if type(length) == 'table' then return length.err, ahead end
        if length > 0 or redis.call('EXISTS', stream) == 1 then lengths[stream] = length end
        streams.last = q + 1
        q, ahead = q + tonumber(string.sub(v[q], 3)) + 1, ahead + 1
      end
    end
    local length = streams.lengths[key]
    if dumped and dumped[key] and depth > 0 then
      return
    elseif length then
      added = {'XDEL', key, '0-0', length = length}
      push(added)
    else
      push({'UNLINK', key})
    end
  end

  if class == 's' then return push_members(key, first + 2, last, false) end
  if class == 'S' then push_expiry(key) return push_members(key, first + 2, last, true) end
  if class == 'z' or class == 'g' then
    return push_scores(key, first + tonumber(string.sub(head, 2, 2)), class == 'z' and 2 or 3)
  end
  if class == 'Z' then push_expiry(key) return push_scores(key, first + 2, 1) end
  if class == 'l' then return push_list(key, true) end
  if class == 'r' then return push_list(key, false) end
  if class == 't' then return push_ttl(key, string.upper(v[first]), v[first + 2]) end
  if class == 'x' then return push_added(key) end
  if class == 'd' and not v then return push_dump(key) end
  if class == 'd' then return push_dumps(first + 1, first + tonumber(string.sub(head, 2, 2))) end
  if class == 'D' then return push_dumps(first + 1, last) end
  for position in string.gmatch(head, ' (%d+)') do -- m
    local why = push_dump(v[first + position])
    if why then return why end
  end
end

function push_string(key, replaced)
  if dumped and dumped[key] and depth > 0 then return end
  local old = redis.pcall('GETRANGE', key, '0', UNDO_BYTES) -- one byte more than is kept
  if type(old) == 'table' then -- another type: SET replaces it, all others fail by themselves
    return unread(old) or replaced and push_other('d', nil, nil, 0, 0, key) or nil
  elseif #old > UNDO_BYTES then
    return TOO_LARGE
  elseif old == '' and redis.call('EXISTS', key) == 0 then
    push({'UNLINK', key})
  elseif replaced then
    push_expiry(key)
    push({'SET', key, old})
  else
    push({'SET', key, old, 'KEEPTTL'})
  end
end

-- Keeps the expiry of single fields, where the server knows that: HSET and HDEL end it. Was: field, value ….
local function push_field_expiries(key, was)
  local ask = {'HPEXPIRETIME', key, 'FIELDS', #was / 2}
  for i = 1, #was, 2 do ask[#ask + 1] = was[i] end
  local times = redis.pcall(unpack(ask))
  if times.err then return 'cannot be undone on this server: ' .. times.err end
  for i, at in ipairs(times) do
    if at >= 0 then push({'HPEXPIREAT', key, string.format('%.0f', at), 'FIELDS', 1, ask[i + 4]}) end
  end
end

local function push_fields(key, v, first, last, step)
  local ask = {'HMGET', key}
  for i = first, last, step do ask[#ask + 1] = v[i] end
  local old = redis.pcall(unpack(ask))
  if old.err then return unread(old) end
  local came, was, size = {}, {}, 0
  for i = 1, #ask - 2 do
    if old[i] then
      was[#was + 1], was[#was + 2] = ask[i + 2], old[i]
      size = size + #old[i]
    else
      came[#came + 1] = ask[i + 2]
    end
  end
  if size > UNDO_BYTES then return TOO_LARGE end
  push_many('HDEL', key, came)
  if #was == 0 then return end
  local why = FIELDS_EXPIRE and push_field_expiries(key, was)
  push_many('HSET', key, was) -- runs before HDEL: a hash that loses all its fields loses its expiry
  return why or nil
end

local function keep(head, v, first, last)
  local class, key = string.sub(head, 1, 1), v[first + 1]
  if dumped and dumped[key] and depth > 0 and string.find('hHsSzgZlrt', class, 1, true) then return end
  if class == 'h' then return push_fields(key, v, first + 2, last, 2) end
  if class == 'i' then return push_string(key, false) end
  if class == 'k' then return push_string(key, true) end
  if class == '-' then return end
  if class == 'H' then push_expiry(key) return push_fields(key, v, first + 2, last, 1) end
  if class == 'K' then
    for i = first + 1, last, 2 do
      local why = push_string(v[i], true)
      if why then return why end
    end
    return
  end
  return push_other(class, head, v, first, last, key)
end

-- Leaves the undo of the command whose arguments stand at first .. last of v. Returns why it cannot be undone (and
-- how many commands ahead stands the one it speaks of), or nil. Where the read of the old value meets the wrong type
-- the command will too, and change nothing.
--
-- A command that cannot be undone may stand before the XADDs at the end, where they cannot fail: then it is the last
-- one that can. An id that no server takes shows what an ACL says.
local function remember(head, v, first, last)
  local why, ahead = keep(head, v, first, last)
  local q = last + 1
  if not why or ahead or string.sub(v[q] or '', 1, 1) ~= 'x' then return why, ahead end
  while string.sub(v[q] or '', 1, 1) == 'x' do
    local length = redis.pcall('XLEN', v[q + 2])
    local tried = redis.pcall('XADD', v[q + 2], '0-0', 'f', 'v')
    if type(length) == 'table' or not string.find(tried.err or '', 'greater than 0-0', 1, true) then return why end
    q = q + 1 + tonumber(string.sub(v[q], 3))
  end
  push({v[first], v[first + 1], lost = why})
end

-- Runs one command of an undo. Returns what is left undone so far, nil for nothing.
local function restore(command, left)
  local ok, reply = true, nil
  if not command.lost then ok, reply = pcall(redis.pcall, unpack(command)) end
  local why = command.lost or not ok and tostring(reply) or type(reply) == 'table' and reply.err
  if not why and command.length and redis.call('XLEN', command[2]) < command.length then
    why = 'MAXLEN has trimmed entries'
  end
  if not why then return left end
  return (left and left .. '; ' or '') .. command[1] .. ' ' .. command[2] .. ': ' .. why
end

-- Runs the undo in reverse. Returns nil, or what could not be restored.
local function rollback()
  local left
  for i = depth, 1, -1 do left = restore(undo[i], left) end
  depth = 0
  return left
end

-- Where the server restores strings alone: returns the index of a command that cannot be undone and why, as far as
-- it shows before the first write. The commands stand from q on.
local rehearse
if not RESTORES then
  function rehearse(v, q, commands)
    for i = 1, commands - 1 do -- the last one needs no undo
      local last = q + (tonumber(string.sub(v[q], 3)) or tonumber(string.match(v[q], '^%d+', 3)))
      local why, ahead = remember(v[q], v, q + 1, last)
      if why then
        depth, streams = 0, nil
        return i + (ahead or 0), why
      end
      q = last + 1
    end
    depth, streams = 0, nil
  end
end
