-- A commit made for its plan: GET with 1 arguments.
-- For any number of transactions.
local string, call, try, KEYS, A = string, redis.call, redis.pcall, KEYS, ARGV
local time = call('TIME')
local NOW = time[1] .. string.sub(#time[2] == 6 and time[2] or '00000' .. time[2], -6, -4) -- ms
if NOW > A[1] then return 0 end
local n = (#A - 1) / 2
local asked, marks, seen = {'HMGET', @INBOX_A, 'id', nil, nil, nil, nil, nil, nil, nil, nil}, {'HSET', @INBOX_A, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}, {}
for i = 1, n do
  local p = 2 * i - 1
  local digest = A[p + 1]
  if seen[digest] then return 0 end
  seen[digest] = true
  asked[i + 3], marks[2 * i + 1], marks[2 * i + 2] = digest, digest, A[p + 2]
end
local rows = try(unpack(asked))
local meta = rows[1]
if not meta or #meta == 0 then return 0 end -- the length of an error is 0
if NOW >= meta then return 0 end -- meta begins with the end of the generation
local older = string.find(meta, @ONE_GENERATION, -#@ONE_GENERATION, true) ~= 27
if older and string.find(meta, @TWO_GENERATIONS, -#@TWO_GENERATIONS, true) ~= 27 then return 0 end
for i = 1, n do
  if rows[i + 1] then return 0 end
end
if older then
  asked[2] = string.sub(@VOID, 1, -5) .. 'inbox:b'
  rows = try(unpack(asked))
  if rows.err then return 0 end
  for i = 1, n do
    if rows[i + 1] then return 0 end
  end
end
if try(unpack(marks)) ~= n then return 0 end
local out = {NOW + 0, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
for i = 1, n do
  local p, k = 2 * i - 1, i + 1
  local why, step = nil, 0
  local r1
  repeat
    step = 1 -- GET
    r1 = try('GET', KEYS[k + 1])
    if r1 ~= 0 and r1 ~= 1 and type(r1) == 'table' and r1.err then why = r1.err break end
  until true
  if why then
    local undo = {}
    local none -- there are no events to take back
    -- _rollback.lua
    local left = rollback()
    if not left then left = restore({'HDEL', @INBOX_A, A[p + 1]}) end
    if left then
      left = 'command ' .. step .. ': ' .. why .. '; not restored: ' .. left
      call('HSET', string.sub(@VOID, 1, -5) .. 'broken', A[p + 1], left)
      call('HSET', @INBOX_A, A[p + 1], A[p + 2] .. '!')
    end
    out[2 * i] = -1
    out[2 * i + 1] = false
  else
    out[2 * i] = 0
    out[2 * i + 1] = r1
  end
end
return out
