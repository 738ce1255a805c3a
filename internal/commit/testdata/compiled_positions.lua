-- A commit made for its plan: position, fenced input, 1 events after 60000 ms, SET with 2 arguments, INCR with 1 arguments.
-- For any number of transactions.
local string, call, try, KEYS, A = string, redis.call, redis.pcall, KEYS, ARGV
local time = call('TIME')
local NOW = time[1] .. string.sub(#time[2] == 6 and time[2] or '00000' .. time[2], -6, -4) -- ms
if NOW > A[2] then return 0 end
local seven = (redis.REDIS_VERSION_NUM or 0) >= 0x070000
local n = (#A - 2) / 9
local asked, marks, seen = {'HMGET', @POSITIONS, nil, nil, nil, nil, nil, nil, nil, nil}, {'HSET', @POSITIONS, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}, {}
local size = 0
local ids, bodies, due = {'HMGET', @ENTRIES, nil, nil, nil, nil, nil, nil, nil, nil}, {'HSET', @ENTRIES, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}, {'ZADD', @PENDING, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
local score = string.format('%d', NOW + 60000)
for i = 1, n do
  local p = 9 * i - 7
  asked[i + 2] = A[p + 1]
  local id, body = A[p + 7], A[p + 8]
  if seen[id] then return 0 end
  seen[id] = true
  ids[i + 2], bodies[2 * i + 1], bodies[2 * i + 2] = id, id, body
  due[2 * i + 1], due[2 * i + 2], size = score, id, size + #body
end
local meta = try('HGET', @INBOX_A, 'id')
if not meta or #meta == 0 then return 0 end -- the length of an error is 0
if NOW >= meta then return 0 end -- meta begins with the end of the generation
if string.find(meta, @ONE_GENERATION, -#@ONE_GENERATION, true) ~= 27 and string.find(meta, @TWO_GENERATIONS, -#@TWO_GENERATIONS, true) ~= 27 then return 0 end
local rows = try(unpack(asked))
if rows.err then return 0 end
local olds, stopped, at, last = {}, {}, {}, 2
for i = 1, n do
  local p = 9 * i - 7
  local field, offset, owner = A[p + 1], A[p + 4], A[p + 6]
  local known = at[field]
  local old = rows[i]
  if known then old = marks[known + 1] end
  if old then
    local cut = #old - #owner
    local stored = string.sub(old, 11, cut)
    if cut - 10 ~= #offset or stored >= offset or stored < A[p + 5] or string.sub(old, cut + 1) ~= owner then return 0 end
  elseif A[p + 5] ~= '' then return 0 end
  if not known then
    known = last + 1
    last = last + 2
    marks[known], at[field] = field, known
  end
  olds[i], marks[known + 1] = old, A[p + 2] .. offset .. owner
end
local pending, found = {}, try('XPENDING', @STREAM, A[1], A[5], '+', n, string.sub(A[2], 14))
for i = 1, #found do
  pending[found[i][1]] = true
end
for i = 1, n do
  local p = 9 * i - 7
  if not pending[A[p + 3]] then return 0 end
end
local found = try(unpack(ids))
if found.err then return 0 end
for i = 1, n do
  if found[i] then return 0 end
end
local bytes, idle, full = try('HINCRBY', @COUNTS, 'bytes', size), nil, nil
if type(bytes) ~= 'number' then return 0 end
if bytes < size then
  full = true -- the number was negative
elseif bytes > @ROOM then
  idle = bytes % @HOLDS >= @IDLE
  if idle then bytes = bytes - @IDLE end
  if bytes > @ROOM then
    -- Purpose: tells a compiled commit whether the outbox may lack the room for its events.
    -- bytes is the field of counts, with the new events. The number of the other events is that of the bodies, without those of
    -- parked and sent events.
    local function crowded(bytes, more)
      if bytes % @IDLE > @OUTBOX_BYTES then return true end
      local shard, events = string.sub(@VOID, 1, -5), redis.pcall('HLEN', @ENTRIES)
      if type(events) ~= 'number' then return true end
      if events + more <= @CAPACITY and bytes < @HOLDS then return false end
      local parked, sent = redis.pcall('ZCARD', shard .. 'parked'), redis.pcall('ZCARD', shard .. 'sent')
      local held = redis.pcall('HGET', @COUNTS, 'parked_bytes')
      if type(parked) ~= 'number' or type(sent) ~= 'number' then return true end
      held = tonumber(held or 0)
      return events - parked - sent + more > @CAPACITY or parked >= @PARKED_CAPACITY or not held or held >= @PARKED_BYTES
    end
    full = crowded(bytes, n)
  end
end
if full or type(try('ZREM', @PENDING, '')) ~= 'number' or type(try('HDEL', @ENTRIES, '')) ~= 'number' then
  try('HINCRBY', @COUNTS, 'bytes', -size)
  return 0
end
if full or type(try(unpack(marks))) ~= 'number' then
  try('HINCRBY', @COUNTS, 'bytes', -size)
  return 0
end
local early
if try(unpack(bodies)) ~= n or type(try(unpack(due))) ~= 'number' then early = 'off the path of the plan' end
local added, woken = 0, nil
local out = {NOW + 0, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
for i = 1, n do
  local p, k = 9 * i - 7, 2 * i + 6
  local why, step = early, 0
  local r1, old1, at1, r2
  repeat
    if why then break end
    if stopped[A[p + 1]] then why = 'off the path of the plan' break end
    step = 1 -- SET
    old1 = try('GETRANGE', KEYS[k + 1], '0', '@UNDO_BYTES')
    if #old1 > @UNDO_BYTES then why, old1 = 'off the path of the plan', nil break end
    if #old1 == 0 then
      -- It is empty or an error.
      if old1 ~= '' then why, old1 = old1.err, nil break end
      local there = try('EXISTS', KEYS[k + 1])
      if type(there) == 'table' then why, old1 = there.err, nil break end
      old1 = there == 1 and ''
    end
    if old1 then
      at1 = try(seven and 'PEXPIRETIME' or 'PTTL', KEYS[k + 1])
      if type(at1) == 'table' or at1 >= 0 and not seven then why, old1 = 'off the path of the plan', nil break end
    end
    r1 = try('SET', KEYS[k + 1], A[p + 9])
    if r1 ~= 0 and r1 ~= 1 and type(r1) == 'table' and r1.err then why = r1.err break end
    step = 2 -- INCR
    r2 = try('INCR', KEYS[k + 2])
    local kind = type(r2)
    if kind == 'table' and r2.err then why = r2.err break end
    if kind == 'number' and (r2 >= @TWO_53 or r2 <= -@TWO_53) then
      local exact = try('GET', KEYS[k + 2])
      r2 = type(exact) == 'string' and exact or r2
    end
  until true
  if why then
    local undo = {}
    -- _rollback.lua
    undo[1] = A[p + 7]
    if old1 == false then undo[#undo + 1] = {'UNLINK', KEYS[k + 1]} end
    if old1 and at1 >= 0 then undo[#undo + 1] = {'PEXPIREAT', KEYS[k + 1], string.format('%.0f', at1)} end
    if old1 then undo[#undo + 1] = {'SET', KEYS[k + 1], old1} end
    local left = rollback()
    if not left and not stopped[A[p + 1]] then
      local old = olds[i]
      left = restore(old and {'HSET', @POSITIONS, A[p + 1], old} or {'HDEL', @POSITIONS, A[p + 1]})
    end
    stopped[A[p + 1]] = true
    if left then
      left = 'command ' .. step .. ': ' .. why .. '; not restored: ' .. left
      call('HSET', string.sub(@VOID, 1, -5) .. 'broken', A[p + 1], left)
      call('HSET', @POSITIONS, A[p + 1], A[p + 2] .. A[p + 4] .. '!' .. string.sub(A[p + 6], 2))
    end
    out[3 * i - 1] = -1
    out[3 * i] = false
    out[3 * i + 1] = false
  else
    out[3 * i - 1] = 0
    out[3 * i] = r1
    out[3 * i + 1] = r2
    woken = woken or 3 * i - 1
    added = added + #A[p + 8]
  end
end
local change = added - size
if woken then
  if not idle and bytes % @IDLE == size then change = change + @IDLE end
end
if change ~= 0 then try('HINCRBY', @COUNTS, 'bytes', string.format('%.0f', change)) end
return out
