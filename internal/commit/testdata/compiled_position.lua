-- A commit made for its plan: position.
local string, call, try, KEYS, A = string, redis.call, redis.pcall, KEYS, ARGV
local time = call('TIME')
local NOW = time[1] .. string.sub('00000' .. time[2], -6, -4) -- ms
if NOW > A[1] then return 0 end
local meta = try('HGET', @INBOX_A, 'id')
if not meta or #meta == 0 then return 0 end -- the length of an error is 0
local rest = string.sub(meta, 14)
if rest ~= @ONE_GENERATION and rest ~= @TWO_GENERATIONS then return 0 end
local seconds = time[1] - (tonumber(string.sub(meta, 1, 10)) or 0)
if meta > NOW or seconds > @RETENTION / 1000 - 1 then return 0 end
local old = try('HGET', @POSITIONS, A[2])
if type(old) == 'table' then return 0 end
if old then
  local cut = #old - #A[6]
  local stored = string.sub(old, 11, cut)
  if cut - 10 ~= #A[4] or stored >= A[4] or stored < A[5] or string.sub(old, cut + 1) ~= A[6] then return 0 end
elseif A[5] ~= '' then return 0 end
local moved = A[3] .. A[4] .. A[6]
if type(try('HSET', @POSITIONS, A[2], moved)) ~= 'number' then return 0 end
local why, step = nil, 0
repeat
until true
if why then
  local undo = {}
  local none -- there are no events to take back
  -- Purpose: undoes what a script has done so far, by the undo of _events.lua.
  -- Runs one command of an undo. Returns the texts of the commands that failed so far, nil for none.
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
  -- Restores the fields of a hash, as they were read. It restores the fields that were present before it deletes those that were
  -- absent, because a hash that is emptied loses its expiry.
  local function restore_fields(ask, old, left)
    local key = ask[2]
    local absent, present = {'HDEL', key}, {}
    for i = 1, #ask - 2 do
      if old[i] then
        present[#present + 1], present[#present + 2] = ask[i + 2], old[i]
      else
        absent[#absent + 1] = ask[i + 2]
      end
    end
    for i = 1, #present, 4000 do left = restore({'HSET', key, unpack(present, i, math.min(#present, i + 3999))}, left) end
    for i, at in ipairs(old.times or {}) do
      if at >= 0 then left = restore({'HPEXPIREAT', key, string.format('%.0f', at), 'FIELDS', 1, ask[i + 2]}, left) end
    end
    if #absent > 2 then left = restore(absent, left) end
    return left
  end
  -- Forgets the undo. The table stays: functions share it.
  local function forget()
    for name in pairs(undo) do
      if name ~= 'strings' then undo[name] = nil end
    end
  end
  -- Runs the undo in reverse. Returns nil, or what could not be restored. Commands of a transaction cannot name the keys of
  -- events, so an id is enough to remove an event. If pending has another type, nothing was added to it.
  local function rollback()
    local left
    for i = #undo, 1, -1 do
      local inverse = undo[i]
      if type(inverse) == 'string' then
        local why = restore({'ZREM', none, inverse})
        if why and not string.find(why, 'WRONGTYPE', 1, true) then left = (left and left .. '; ' or '') .. why end
        left = restore({'HDEL', none, inverse}, left)
      elseif type(inverse[2]) == 'table' then
        left = restore_fields(inverse[1], inverse[2], left)
      else
        left = restore(inverse, left)
      end
    end
    forget()
    return left
  end
  local left = rollback()
  if not left then left = restore(old and {'HSET', @POSITIONS, A[2], old} or {'HDEL', @POSITIONS, A[2]}) end
  if left then
    left = 'command ' .. step .. ': ' .. why .. '; not restored: ' .. left
    call('HSET', string.sub(@VOID, 1, -5) .. 'broken', A[2], left)
    call('HSET', @POSITIONS, A[2], A[3] .. A[4] .. '!' .. string.sub(A[6], 2))
  end
  return 0
end
local flags = 0
return {NOW, flags}
