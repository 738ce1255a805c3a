-- A commit made for its plan: fenced and acknowledged input, 2 events after 0 ms, HSET with 5 arguments, HINCRBY with 3 arguments, SET with 2 arguments, INCR with 1 arguments, HGET with 2 arguments, APPEND with 2 arguments.
local string, call, try, KEYS, A = string, redis.call, redis.pcall, KEYS, ARGV
local time = call('TIME')
local NOW = time[1] .. string.sub(#time[2] == 6 and time[2] or '00000' .. time[2], -6, -4) -- ms
if NOW > A[2] then return 0 end
local fields_expire = (redis.REDIS_VERSION_NUM or 0) >= 0x070400 or (redis.VALKEY_VERSION_NUM or 0) >= 0x090000
local seven = (redis.REDIS_VERSION_NUM or 0) >= 0x070000
local meta = try('HGET', @INBOX_A, 'id')
if not meta or #meta == 0 then return 0 end -- the length of an error is 0
if NOW >= meta then return 0 end -- meta begins with the end of the generation
if string.find(meta, @ONE_GENERATION, -#@ONE_GENERATION, true) ~= 27 then
  if string.find(meta, @TWO_GENERATIONS, -#@TWO_GENERATIONS, true) ~= 27 or try('HEXISTS', string.sub(@VOID, 1, -5) .. 'inbox:b', A[3]) ~= 0 then return 0 end
end
if try('EXISTS', @TAKEN) ~= 0 and try('HGET', @TAKEN, A[1] .. '\0' .. string.sub(A[2], 14)) then return 0 end
if A[8] == A[6] then return 0 end
local size = #A[7] + #A[9]
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
    full = crowded(bytes, 2)
  end
end
if full or try('HSETNX', @INBOX_A, A[3], A[4]) ~= 1 then
  try('HINCRBY', @COUNTS, 'bytes', -size)
  return 0
end
local score = NOW
local why, step, entered = nil, 0, 0
local r1, old1, r2, old2, r3, old3, at3, r4, old4, r5, r6
repeat
  step = -1
  if try('HSETNX', @ENTRIES, A[6], A[7]) ~= 1 then why = 'off the path of the plan' break end
  entered = 1
  local added = try('ZADD', @PENDING, score, A[6])
  if added ~= 1 and added ~= 0 then why = 'off the path of the plan' break end
  step = -2
  if try('HSETNX', @ENTRIES, A[8], A[9]) ~= 1 then why = 'off the path of the plan' break end
  entered = 2
  local added = try('ZADD', @PENDING, score, A[8])
  if added ~= 1 and added ~= 0 then why = 'off the path of the plan' break end
  step = 1 -- HSET
  old1 = try('HMGET', KEYS[8], A[10], A[12])
  if old1.err then why, old1 = old1.err, nil break end
  if #(old1[1] or '') + #(old1[2] or '') > @UNDO_BYTES then why, old1 = 'off the path of the plan', nil break end
  if fields_expire and (old1[1] or old1[2]) then
    local times = try('HPEXPIRETIME', KEYS[8], 'FIELDS', 2, A[10], A[12])
    if times.err or times[1] >= 0 or times[2] >= 0 then why, old1 = 'off the path of the plan', nil break end
  end
  r1 = try('HSET', KEYS[8], A[10], A[11], A[12], A[13])
  if r1 ~= 0 and r1 ~= 1 and type(r1) == 'table' and r1.err then why = r1.err break end
  step = 2 -- HINCRBY
  old2 = try('HMGET', KEYS[9], A[14])
  if old2.err then why, old2 = old2.err, nil break end
  if #(old2[1] or '') > @UNDO_BYTES then why, old2 = 'off the path of the plan', nil break end
  if fields_expire and (old2[1]) then
    local times = try('HPEXPIRETIME', KEYS[9], 'FIELDS', 1, A[14])
    if times.err or times[1] >= 0 then why, old2 = 'off the path of the plan', nil break end
  end
  r2 = try('HINCRBY', KEYS[9], A[14], A[15])
  local kind = type(r2)
  if kind == 'table' and r2.err then why = r2.err break end
  if kind == 'number' and (r2 >= @TWO_53 or r2 <= -@TWO_53) then
    local exact = try('HGET', KEYS[9], A[14])
    r2 = type(exact) == 'string' and exact or r2
  end
  step = 3 -- SET
  old3 = try('GETRANGE', KEYS[10], '0', '@UNDO_BYTES')
  if #old3 > @UNDO_BYTES then why, old3 = 'off the path of the plan', nil break end
  if #old3 == 0 then
    -- It is empty or an error.
    if old3 ~= '' then why, old3 = old3.err, nil break end
    local there = try('EXISTS', KEYS[10])
    if type(there) == 'table' then why, old3 = there.err, nil break end
    old3 = there == 1 and ''
  end
  if old3 then
    at3 = try(seven and 'PEXPIRETIME' or 'PTTL', KEYS[10])
    if type(at3) == 'table' or at3 >= 0 and not seven then why, old3 = 'off the path of the plan', nil break end
  end
  r3 = try('SET', KEYS[10], A[16])
  if r3 ~= 0 and r3 ~= 1 and type(r3) == 'table' and r3.err then why = r3.err break end
  step = 4 -- INCR
  old4 = try('STRLEN', KEYS[11])
  if type(old4) ~= 'number' or old4 > 15 then
    old4 = try('GETRANGE', KEYS[11], '0', '@UNDO_BYTES')
    if #old4 > @UNDO_BYTES then why, old4 = 'off the path of the plan', nil break end
    if #old4 == 0 then
      -- It is empty or an error.
      if old4 ~= '' then why, old4 = old4.err, nil break end
      local there = try('EXISTS', KEYS[11])
      if type(there) == 'table' then why, old4 = there.err, nil break end
      old4 = there == 1 and ''
    end
  end
  r4 = try('INCR', KEYS[11])
  local kind = type(r4)
  if kind == 'table' and r4.err then why, old4 = r4.err, nil break end
  if kind == 'number' and (r4 >= @TWO_53 or r4 <= -@TWO_53) then
    local exact = try('GET', KEYS[11])
    r4 = type(exact) == 'string' and exact or r4
  end
  step = 5 -- HGET
  r5 = try('HGET', KEYS[12], A[17])
  if r5 ~= 0 and r5 ~= 1 and type(r5) == 'table' and r5.err then why = r5.err break end
  step = 6 -- APPEND
  r6 = try('APPEND', KEYS[13], A[18])
  if r6 ~= 0 and r6 ~= 1 and type(r6) == 'table' and r6.err then why = r6.err break end
until true
if why then
  local undo = {}
  -- _rollback.lua
  undo[1] = {'HINCRBY', @COUNTS, 'bytes', -size}
  if entered > 0 then undo[2] = A[6] end
  if entered > 1 then undo[3] = A[8] end
  if old1 then undo[#undo + 1] = {{'HMGET', KEYS[8], A[10], A[12]}, old1} end
  if old2 then undo[#undo + 1] = {{'HMGET', KEYS[9], A[14]}, old2} end
  if old3 == false then undo[#undo + 1] = {'UNLINK', KEYS[10]} end
  if old3 and at3 >= 0 then undo[#undo + 1] = {'PEXPIREAT', KEYS[10], string.format('%.0f', at3)} end
  if old3 then undo[#undo + 1] = {'SET', KEYS[10], old3} end
  if old4 == 0 then
    old4 = false
  elseif type(old4) == 'number' then
    old4 = string.format('%.0f', r4 - 1)
  end
  if old4 == false then undo[#undo + 1] = {'UNLINK', KEYS[11]} end
  if old4 then undo[#undo + 1] = {'SET', KEYS[11], old4, 'KEEPTTL'} end
  local left = rollback()
  if not left then left = restore({'HDEL', @INBOX_A, A[3]}) end
  if left then
    left = 'command ' .. step .. ': ' .. why .. '; not restored: ' .. left
    call('HSET', string.sub(@VOID, 1, -5) .. 'broken', A[3], left)
    call('HSET', @INBOX_A, A[3], A[4] .. '!')
  end
  return 0
end
local flags = 0
if idle or bytes % @IDLE == size then flags = 2 end
if idle then try('HINCRBY', @COUNTS, 'bytes', '-@IDLE') end
local acked = try('XACK', @STREAM, A[1], A[5])
if acked == 1 or acked == 0 then flags = flags + 1 end
return {NOW + 0, flags, r1, r2, r3, r4, r5, r6}
