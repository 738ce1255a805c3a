-- A commit made for its plan: position, fenced input.
local string, call, try, KEYS, A = string, redis.call, redis.pcall, KEYS, ARGV
local time = call('TIME')
local NOW = time[1] .. string.sub(#time[2] == 6 and time[2] or '00000' .. time[2], -6, -4) -- ms
if NOW > A[2] then return 0 end
local meta = try('HGET', @INBOX_A, 'id')
if not meta or #meta == 0 then return 0 end -- the length of an error is 0
if NOW >= meta then return 0 end -- meta begins with the end of the generation
if string.find(meta, @ONE_GENERATION, -#@ONE_GENERATION, true) ~= 27 and string.find(meta, @TWO_GENERATIONS, -#@TWO_GENERATIONS, true) ~= 27 then return 0 end
local old = try('HGET', @POSITIONS, A[3])
if type(old) == 'table' then return 0 end
if old then
  local cut = #old - #A[8]
  local stored = string.sub(old, 11, cut)
  if cut - 10 ~= #A[6] or stored >= A[6] or stored < A[7] or string.sub(old, cut + 1) ~= A[8] then return 0 end
elseif A[7] ~= '' then return 0 end
local moved = A[4] .. A[6] .. A[8]
if #try('XPENDING', @STREAM, A[1], A[5], A[5], '1', string.sub(A[2], 14)) == 0 then return 0 end
if type(try('HSET', @POSITIONS, A[3], moved)) ~= 'number' then return 0 end
local why, step = nil, 0
repeat
until true
if why then
  local undo = {}
  local none -- there are no events to take back
  -- _rollback.lua
  local left = rollback()
  if not left then left = restore(old and {'HSET', @POSITIONS, A[3], old} or {'HDEL', @POSITIONS, A[3]}) end
  if left then
    left = 'command ' .. step .. ': ' .. why .. '; not restored: ' .. left
    call('HSET', string.sub(@VOID, 1, -5) .. 'broken', A[3], left)
    call('HSET', @POSITIONS, A[3], A[4] .. A[6] .. '!' .. string.sub(A[8], 2))
  end
  return 0
end
local flags = 0
return {NOW + 0, flags}
