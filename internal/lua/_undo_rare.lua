-- Purpose: the less common classes of the undo.
--#needs _time _events _undo
--#defines too_large push_expiry unread push_whole push_other excuse

local VERSION = redis.REDIS_VERSION_NUM or 0
local too_large = 'cannot be undone: it takes more than ' .. @UNDO_BYTES .. ' bytes to keep; make it the last command'

local function push(command) undo[#undo + 1] = command end

-- Pushes one command on a key, {name, key, value …}, in pieces: unpack takes 5,115 values on every server. A piece
-- holds pairs whole.
local function push_many(command)
  for i = 3, #command, 4000 do push({command[1], command[2], unpack(command, i, math.min(#command, i + 3999))}) end
end

-- What PEXPIRETIME says from 7.0 on: the clock goes on while a script runs, so it is read before and after.
local function left_at(key)
  local at
  for _ = 1, 10 do
    local before = redis.call('TIME')
    local left = redis.call('PTTL', key)
    local after = redis.call('TIME')
    local ms = math.floor(tonumber(before[2]) / 1000)
    at = tonumber(before[1]) * 1000 + ms + math.max(1, left)
    if before[1] == after[1] and ms == math.floor(tonumber(after[2]) / 1000) then break end
  end
  return at
end

-- The time a key expires at (ms), nil for never; and -2 where it does not exist. PTTL is 0 for a key that expires
-- while the script runs, which RESTORE would take for never.
local function expiry(key)
  local left = redis.call(VERSION >= 0x070000 and 'PEXPIRETIME' or 'PTTL', key)
  if left < 0 then return nil, left end
  if VERSION < 0x070000 then left = left_at(key) end
  return string.format('%.0f', left)
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

-- Keeps a key whole.
local function push_whole(key)
  if undo.dumped and undo.dumped[key] then return end
  local kind = not undo.strings or redis.call('TYPE', key).ok
  if kind == 'string' then return push_string(key, true) end
  if kind ~= true and kind ~= 'none' then
    return 'cannot be undone on this server: ' .. key .. ' is a ' .. kind .. ', and DUMP or RESTORE is denied or '
      .. 'knows strings only; grant +dump +restore, or make it the last command'
  end
  local size = not undo.strings and redis.pcall('MEMORY', 'USAGE', key) -- an error where it is denied
  if type(size) == 'number' and size > @UNDO_BYTES then return too_large end
  local old = not undo.strings and redis.pcall('DUMP', key)
  if not old then
    push({'UNLINK', key})
  elseif type(old) == 'table' then
    return 'cannot be undone on this server: ' .. old.err
  elseif #old > @UNDO_BYTES then
    return too_large
  else
    push({'RESTORE', key, expiry(key) or '0', old, 'REPLACE', 'ABSTTL'})
  end
  undo.dumped = undo.dumped or {}
  undo.dumped[key] = true
end

-- Keeps the keys at first .. last of v whole; of a string class, as strings where they are such.
local function push_keys(v, first, last, step, keep)
  for i = first, last, step do
    local why = keep(v[i], true)
    if why then return why end
  end
end

local function push_members(key, v, first, last, gone)
  local inverse = {gone and 'SADD' or 'SREM', key}
  for i = first, last do
    local found = redis.pcall('SISMEMBER', key, v[i])
    if type(found) == 'table' then return unread(found) end
    if (found == 1) == gone then inverse[#inverse + 1] = v[i] end
  end
  push_many(inverse)
end

-- Keeps the scores of the members at every step-th place from at on; where that is 0, from behind the options on.
local function push_scores(key, v, first, last, at, step)
  at = first + at
  if at == first then
    at = first + 2
    while string.find(' NX XX GT LT CH INCR ', ' ' .. string.upper(v[at] or '-') .. ' ', 1, true) do at = at + 1 end
    at = at + step - 1
  end
  local came, was = {'ZREM', key}, {'ZADD', key}
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
  push_many(came)
  push_many(was)
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
    if due <= now + 1000 then return push_whole(key) end -- an expiry in the past deletes
  end
  local at, none = expiry(key)
  if at then
    push({'PEXPIREAT', key, at})
  elseif none == -1 then
    push({'PERSIST', key})
  end
end

-- How many arguments the i-th command of a plan has.
local function size_of(plan, i)
  local high, low = string.byte(plan, 14 + 4 * i, 15 + 4 * i)
  return high * 256 + low
end

-- Whether the i-th command of a plan is an XADD at its end.
local function is_added(plan, i) return plan and string.byte(plan, 12 + 4 * i) == @APPENDED end

-- An XADD is undone by the id it was given. Before the first of those at the end runs, a look at all their keys:
-- none of them fails then, but for what an ACL says of single keys.
local function push_added(key, v, first, plan, i)
  if not undo.streams or first > undo.streams.last then
    local lengths, at, ahead = {}, first, 0
    undo.streams = {lengths = lengths, last = first}
    while is_added(plan, i + ahead) do
      local stream = v[at + 1]
      local length = redis.pcall('XLEN', stream)
      if type(length) == 'table' then return length.err, ahead end
      if length > 0 or redis.call('EXISTS', stream) == 1 then lengths[stream] = length end
      undo.streams.last = at
      at, ahead = at + size_of(plan, i + ahead), ahead + 1
    end
  end
  local length = undo.streams.lengths[key]
  if undo.dumped and undo.dumped[key] then
    return
  elseif length then
    undo.added = {'XDEL', key, '0-0', length = length}
    push(undo.added)
  else
    push({'UNLINK', key})
  end
end

-- Returns why the command cannot be undone, or nil.
local function push_other(letter, digit, v, first, last, plan, i)
  local class, key = string.char(letter), v[first + 1]
  if class == 'x' then return push_added(key, v, first, plan, i) end
  if class == 'd' then return push_keys(v, first + 1, first + digit, 1, push_whole) end
  if class == 'D' then return push_keys(v, first + 1, last, 1, push_whole) end
  if class == 'K' then return push_keys(v, first + 1, last, 2, push_string) end
  if class == 'm' then
    for position in string.gmatch(v[first], '%d+') do
      local why = push_whole(v[first + 1 + position])
      if why then return why end
    end
    return
  end
  if undo.dumped and undo.dumped[key] then return end
  if class == 's' then return push_members(key, v, first + 2, last, false) end
  if class == 'z' then return push_scores(key, v, first, last, digit, 2) end
  if class == 'g' then return push_scores(key, v, first, last, digit, 3) end
  if class == 'l' then return push_list(key, true) end
  if class == 'r' then return push_list(key, false) end
  if class == 't' then return push_ttl(key, string.upper(v[first]), v[first + 2]) end
  push_expiry(key) -- those that take away
  if class == 'H' then return push_fields(key, v, first + 2, last, 1) end
  if class == 'S' then return push_members(key, v, first + 2, last, true) end
  if class == 'Z' then return push_scores(key, v, first, last, 2, 1) end
end

-- A command that cannot be undone may stand before the XADDs at the end, where they cannot fail: then it is the last
-- one that can. An id that no server takes shows what an ACL says.
local function excuse(why, ahead, class, v, first, last, plan, i)
  local at, n = last + 1, (i or 0) + 1
  if ahead or not is_added(plan, n) then return why, ahead end
  while is_added(plan, n) do
    local length = redis.pcall('XLEN', v[at + 1])
    local tried = redis.pcall('XADD', v[at + 1], '0-0', 'f', 'v')
    if type(length) == 'table' or not string.find(tried.err or '', 'greater than 0-0', 1, true) then return why end
    at, n = at + size_of(plan, n), n + 1
  end
  if class == @POSITIONS then first = first + 1 end
  push({v[first], v[first + 1], lost = why})
end
