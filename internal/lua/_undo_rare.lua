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

-- Computes what PEXPIRETIME returns from 7.0 on. The clock goes on while a script runs, so it is read before and after.
local function left_at(key)
  local expires
  for _ = 1, 10 do
    local before = redis.call('TIME')
    local left = redis.call('PTTL', key)
    local after = redis.call('TIME')
    local ms = math.floor(tonumber(before[2]) / 1000)
    expires = tonumber(before[1]) * 1000 + ms + math.max(1, left)
    if before[1] == after[1] and ms == math.floor(tonumber(after[2]) / 1000) then break end
  end
  return expires
end

-- Returns when a key expires (ms); nil and -1 for never; nil and -2 if the key does not exist. PTTL is 0 for a key that expires
-- while the script runs, and RESTORE would take 0 for never.
local function expiry(key)
  local left = redis.call(VERSION >= 0x070000 and 'PEXPIRETIME' or 'PTTL', key)
  if left < 0 then return nil, left end
  if VERSION < 0x070000 then left = left_at(key) end
  return string.format('%.0f', left)
end

-- Keeps the expiry of a key that the command, or its undo, may empty. Pushed first: restored last.
local function push_expiry(key)
  local expires = expiry(key)
  if expires then push({'PEXPIREAT', key, expires}) end
end

-- Returns why a command cannot be undone whose old value could not be read; nil if it will meet the wrong type, as the read
-- did, and so change nothing.
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

-- Keeps the keys at every step-th of args[first .. last], by keep: push_whole, or push_string for a class of strings.
local function push_keys(args, first, last, step, keep)
  for i = first, last, step do
    local why = keep(args[i], true)
    if why then return why end
  end
end

local function push_members(key, args, first, last, gone)
  local inverse = {gone and 'SADD' or 'SREM', key}
  for i = first, last do
    local found = redis.pcall('SISMEMBER', key, args[i])
    if type(found) == 'table' then return unread(found) end
    if (found == 1) == gone then inverse[#inverse + 1] = args[i] end
  end
  push_many(inverse)
end

-- Keeps the scores of the members at every step-th argument from arg on; if arg is 0, from behind the options on.
local function push_scores(key, args, first, last, arg, step)
  arg = first + arg
  if arg == first then
    arg = first + 2
    while string.find(' NX XX GT LT CH INCR ', ' ' .. string.upper(args[arg] or '-') .. ' ', 1, true) do arg = arg + 1 end
    arg = arg + step - 1
  end
  local absent, present = {'ZREM', key}, {'ZADD', key}
  for i = arg, last, step do
    local score = redis.pcall('ZSCORE', key, args[i])
    if not score then
      absent[#absent + 1] = args[i]
    elseif type(score) == 'table' then
      return unread(score)
    else
      present[#present + 1], present[#present + 2] = score, args[i]
    end
  end
  push_many(absent)
  push_many(present)
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
  local expires, none = expiry(key)
  if expires then
    push({'PEXPIREAT', key, expires})
  elseif none == -1 then
    push({'PERSIST', key})
  end
end

-- Returns how many arguments a command of a plan has.
local function size_of(plan, index)
  local high, low = string.byte(plan, 14 + 4 * index, 15 + 4 * index)
  return high * 256 + low
end

-- Reports whether a command of a plan is an XADD at its end.
local function is_added(plan, index) return plan and string.byte(plan, 12 + 4 * index) == @APPENDED end

-- The undo of an XADD is XDEL of the id that it returns. Before the first of those at the end runs, this checks all their keys,
-- so that none of them fails, unless an ACL denies single keys.
local function push_added(key, args, first, plan, index)
  if not undo.streams or first > undo.streams.last then
    local lengths, arg, ahead = {}, first, 0
    undo.streams = {lengths = lengths, last = first}
    while is_added(plan, index + ahead) do
      local stream = args[arg + 1]
      local length = redis.pcall('XLEN', stream)
      if type(length) == 'table' then return length.err, ahead end
      if length > 0 or redis.call('EXISTS', stream) == 1 then lengths[stream] = length end
      undo.streams.last = arg
      arg, ahead = arg + size_of(plan, index + ahead), ahead + 1
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
local function push_other(letter, digit, args, first, last, plan, index)
  local class, key = string.char(letter), args[first + 1]
  if class == 'x' then return push_added(key, args, first, plan, index) end
  if class == 'd' then return push_keys(args, first + 1, first + digit, 1, push_whole) end
  if class == 'D' then return push_keys(args, first + 1, last, 1, push_whole) end
  if class == 'K' then return push_keys(args, first + 1, last, 2, push_string) end
  if class == 'm' then
    for position in string.gmatch(args[first], '%d+') do
      local why = push_whole(args[first + 1 + position])
      if why then return why end
    end
    return
  end
  if undo.dumped and undo.dumped[key] then return end
  if class == 's' then return push_members(key, args, first + 2, last, false) end
  if class == 'z' then return push_scores(key, args, first, last, digit, 2) end
  if class == 'g' then return push_scores(key, args, first, last, digit, 3) end
  if class == 'l' then return push_list(key, true) end
  if class == 'r' then return push_list(key, false) end
  if class == 't' then return push_ttl(key, string.upper(args[first]), args[first + 2]) end
  push_expiry(key) -- the classes that remove
  if class == 'H' then return push_fields(key, args, first + 2, last, 1) end
  if class == 'S' then return push_members(key, args, first + 2, last, true) end
  if class == 'Z' then return push_scores(key, args, first, last, 2, 1) end
end

-- A command that cannot be undone is allowed before the XADDs at the end if they cannot fail. Then it is the last one that can.
-- An XADD with an id that every server rejects shows whether an ACL denies it.
local function excuse(why, ahead, class, args, first, last, plan, index)
  local arg, following = last + 1, (index or 0) + 1
  if ahead or not is_added(plan, following) then return why, ahead end
  while is_added(plan, following) do
    local length = redis.pcall('XLEN', args[arg + 1])
    local tried = redis.pcall('XADD', args[arg + 1], '0-0', 'f', 'v')
    if type(length) == 'table' or not string.find(tried.err or '', 'greater than 0-0', 1, true) then return why end
    arg, following = arg + size_of(plan, following), following + 1
  end
  if class == @KEYS_AT then first = first + 1 end
  push({args[first], args[first + 1], lost = why})
end
