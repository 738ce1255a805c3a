-- Purpose: the undo of a transaction. Before a command writes, remember() reads the old values and pushes the
-- commands that restore them; rollback() runs those in reverse. Expects now (ms) and UNDO_BYTES.
--
-- A command comes with a head: its undo class (one letter), a digit, and its number of arguments.
--   k  a string that is replaced       i  a string that is changed     K  strings, as pairs
--   h  hash fields, every second       H  hash fields that go
--   s  set members that come           S  set members that go
--   z  members, every second, from the digit on                        Z  members that go
--   l  pushed on the left              r  pushed on the right
--   t  an expiry                       d  anything, by DUMP: as many keys as the digit says; D  all arguments
--
-- A script makes its functions anew at each run, and one costs as much as a short call: the less common ones stand
-- inside push_other.

local undo, depth = {}, 0

local function push(command)
  depth = depth + 1
  undo[depth] = command
end

local function absolute(pttl) -- a key that expires while the script runs shows 0, which RESTORE takes for never
  return string.format('%.0f', now + math.max(1, pttl))
end

-- Keeps the expiry of a key that the command, or its undo, may empty. Pushed first: restored last.
local function push_expiry(key)
  local pttl = redis.call('PTTL', key)
  if pttl >= 0 then push({'PEXPIREAT', key, absolute(pttl)}) end
end

-- The less common classes. Returns why the command cannot be undone, or nil.
local function push_other(class, digit, v, first, last, key)
  local function push_dump(key)
    local size = redis.pcall('MEMORY', 'USAGE', key) -- an error where the server has no such command
    if type(size) == 'number' and size > UNDO_BYTES then
      return 'cannot be undone: the key takes more than ' .. UNDO_BYTES .. ' bytes; make it the last command'
    end
    local old = redis.pcall('DUMP', key)
    if not old then
      push({'UNLINK', key})
    elseif type(old) == 'table' then
      return 'cannot be undone on this server: ' .. old.err
    else
      local pttl = redis.call('PTTL', key)
      push({'RESTORE', key, pttl >= 0 and absolute(pttl) or '0', old, 'REPLACE', 'ABSTTL'})
    end
  end

  local function push_members(key, first, last, gone)
    local inverse = {gone and 'SADD' or 'SREM', key}
    for i = first, last do
      local found = redis.pcall('SISMEMBER', key, v[i])
      if type(found) == 'table' then return end
      if (found == 1) == gone then inverse[#inverse + 1] = v[i] end
    end
    if #inverse > 2 then push(inverse) end
  end

  local function push_scores(key, first, last, step)
    local came, was = {'ZREM', key}, {'ZADD', key}
    for i = first, last, step do
      local score = redis.pcall('ZSCORE', key, v[i])
      if not score then
        came[#came + 1] = v[i]
      elseif type(score) == 'table' then
        return
      else
        was[#was + 1], was[#was + 2] = score, v[i]
      end
    end
    if #came > 2 then push(came) end
    if #was > 2 then push(was) end
  end

  local function push_list(key, left)
    local length = redis.pcall('LLEN', key)
    if type(length) == 'table' then return end
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
    local pttl = redis.call('PTTL', key)
    if pttl == -1 then
      push({'PERSIST', key})
    elseif pttl >= 0 then
      push({'PEXPIREAT', key, absolute(pttl)})
    end
  end

  if class == 's' then return push_members(key, first + 2, last, false) end
  if class == 'S' then push_expiry(key) return push_members(key, first + 2, last, true) end
  if class == 'z' then return push_scores(key, first + digit, last, 2) end
  if class == 'Z' then push_expiry(key) return push_scores(key, first + 2, last, 1) end
  if class == 'l' then return push_list(key, true) end
  if class == 'r' then return push_list(key, false) end
  if class == 't' then return push_ttl(key, string.upper(v[first]), v[first + 2]) end
  if class == 'd' and first == 0 then return push_dump(key) end
  if class == 'd' then last = first + digit end
  for i = first + 1, last do
    local why = push_dump(v[i])
    if why then return why end
  end
end

local function push_string(key, replaced)
  local old = redis.pcall('GET', key)
  if type(old) == 'table' then -- another type: SET replaces it, all others fail by themselves
    return replaced and push_other('d', 1, nil, 0, 0, key) or nil
  elseif not old then
    push({'UNLINK', key})
  elseif replaced then
    push_expiry(key)
    push({'SET', key, old})
  else
    push({'SET', key, old, 'KEEPTTL'})
  end
end

-- Keeps the expiry of single fields, where the server knows that (7.4): HSET and HDEL end it.
local function push_field_expiries(key, was)
  local ask = {'HPEXPIRETIME', key, 'FIELDS', (#was - 2) / 2}
  for i = 3, #was, 2 do ask[#ask + 1] = was[i] end
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
  if old.err then return end
  local came, was = {'HDEL', key}, {'HSET', key}
  for i = 1, #ask - 2 do
    if old[i] then
      was[#was + 1], was[#was + 2] = ask[i + 2], old[i]
    else
      came[#came + 1] = ask[i + 2]
    end
  end
  if #came > 2 then push(came) end
  if #was == 2 then return end
  local why = (redis.REDIS_VERSION_NUM or 0) >= 0x070400 and push_field_expiries(key, was)
  push(was) -- runs before came: a hash that loses all its fields loses its expiry
  return why or nil
end

-- Leaves the undo of the command whose arguments stand at first .. last of v. Returns why it cannot be
-- undone, or nil. Where the read of the old value fails the command will fail too, and change nothing.
local function remember(head, v, first, last)
  local class, key = string.sub(head, 1, 1), v[first + 1]
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
  return push_other(class, tonumber(string.sub(head, 2, 2)), v, first, last, key)
end

-- Runs one command of an undo. Returns what is left undone so far, nil for nothing.
local function restore(command, left)
  local reply = redis.pcall(unpack(command))
  if type(reply) ~= 'table' or not reply.err then return left end
  return (left and left .. '; ' or '') .. command[1] .. ' ' .. command[2] .. ': ' .. reply.err
end

-- Runs the undo in reverse. Returns nil, or what could not be restored.
local function rollback()
  local left
  for i = depth, 1, -1 do left = restore(undo[i], left) end
  depth = 0
  return left
end
