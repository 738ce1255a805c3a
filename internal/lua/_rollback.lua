-- Purpose: takes back what a script has done so far; see _events.lua, whose undo it uses.
--#needs _events
--#defines restore forget rollback

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

-- Restores the fields of a hash, as they were read. Those that were there come first: a hash that is emptied loses its
-- expiry.
local function restore_fields(ask, old, left)
  local key = ask[2]
  local came, was = {'HDEL', key}, {}
  for i = 1, #ask - 2 do
    if old[i] then
      was[#was + 1], was[#was + 2] = ask[i + 2], old[i]
    else
      came[#came + 1] = ask[i + 2]
    end
  end
  for i = 1, #was, 4000 do left = restore({'HSET', key, unpack(was, i, math.min(#was, i + 3999))}, left) end
  for i, at in ipairs(old.times or {}) do
    if at >= 0 then left = restore({'HPEXPIREAT', key, string.format('%.0f', at), 'FIELDS', 1, ask[i + 2]}, left) end
  end
  if #came > 2 then left = restore(came, left) end
  return left
end

-- Forgets the undo. The table stays: functions share it.
local function forget()
  for name in pairs(undo) do
    if name ~= 'strings' then undo[name] = nil end
  end
end

-- Runs the undo in reverse. Returns nil, or what could not be restored. The business does not know the keys of events:
-- their inverse is known. Where pending has another type nothing came into it.
local function rollback()
  local left
  for i = #undo, 1, -1 do
    local it = undo[i]
    if type(it) == 'string' then
      if type(redis.pcall('ZCARD', @PENDING)) == 'number' then left = restore({'ZREM', @PENDING, it}, left) end
      left = restore({'HDEL', @ENTRIES, it}, left)
    elseif type(it[2]) == 'table' then
      left = restore_fields(it[1], it[2], left)
    else
      left = restore(it, left)
    end
  end
  forget()
  return left
end
