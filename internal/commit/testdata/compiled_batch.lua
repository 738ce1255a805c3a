-- A commit made for its plan: fenced and acknowledged input, 2 events after 0 ms, HSET with 5 arguments, HINCRBY with 3 arguments, SET with 2 arguments, INCR with 1 arguments, HGET with 2 arguments, APPEND with 2 arguments.
-- For any number of transactions.
local string, call, try, KEYS, A = string, redis.call, redis.pcall, KEYS, ARGV
local time = call('TIME')
local NOW = time[1] .. string.sub(#time[2] == 6 and time[2] or '00000' .. time[2], -6, -4) -- ms
if NOW > A[2] then return 0 end
local fields_expire = (redis.REDIS_VERSION_NUM or 0) >= 0x070400 or (redis.VALKEY_VERSION_NUM or 0) >= 0x090000
local seven = (redis.REDIS_VERSION_NUM or 0) >= 0x070000
local n = (#A - 2) / 16
local asked, marks, seen = {'HMGET', @INBOX_A, 'id', nil, nil, nil, nil, nil, nil, nil, nil}, {'HSET', @INBOX_A, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}, {}
local size = 0
local ids, bodies, due = {'HMGET', @ENTRIES, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}, {'HSET', @ENTRIES, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}, {'ZADD', @PENDING, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
local score = NOW
for i = 1, n do
  local p = 16 * i - 14
  local digest = A[p + 1]
  if seen[digest] then return 0 end
  seen[digest] = true
  asked[i + 3], marks[2 * i + 1], marks[2 * i + 2] = digest, digest, A[p + 2]
  local id, body = A[p + 4], A[p + 5]
  if seen[id] then return 0 end
  seen[id] = true
  ids[2 * i + 1], bodies[4 * i - 1], bodies[4 * i] = id, id, body
  due[4 * i - 1], due[4 * i], size = score, id, size + #body
  local id, body = A[p + 6], A[p + 7]
  if seen[id] then return 0 end
  seen[id] = true
  ids[2 * i + 2], bodies[4 * i + 1], bodies[4 * i + 2] = id, id, body
  due[4 * i + 1], due[4 * i + 2], size = score, id, size + #body
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
if try('EXISTS', @TAKEN) ~= 0 and try('HGET', @TAKEN, A[1] .. '\0' .. string.sub(A[2], 14)) then return 0 end
local found = try(unpack(ids))
if found.err then return 0 end
for i = 1, 2 * n do
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
    full = crowded(bytes, 2 * n)
  end
end
if full or try(unpack(marks)) ~= n then
  try('HINCRBY', @COUNTS, 'bytes', -size)
  return 0
end
local early
if try(unpack(bodies)) ~= 2 * n or type(try(unpack(due))) ~= 'number' then early = 'off the path of the plan' end
local added, woken = 0, nil
local out = {NOW + 0, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
local ack = {'XACK', @STREAM, A[1], nil, nil, nil, nil, nil, nil, nil, nil}
for i = 1, n do
  local p, k = 16 * i - 14, 6 * i + 1
  local why, step = early, 0
  local r1, old1, r2, old2, r3, old3, at3, r4, old4, r5, r6
  repeat
    if why then break end
    step = 1 -- HSET
    old1 = try('HMGET', KEYS[k + 1], A[p + 8], A[p + 10])
    if old1.err then why, old1 = old1.err, nil break end
    if #(old1[1] or '') + #(old1[2] or '') > @UNDO_BYTES then why, old1 = 'off the path of the plan', nil break end
    if fields_expire and (old1[1] or old1[2]) then
      local times = try('HPEXPIRETIME', KEYS[k + 1], 'FIELDS', 2, A[p + 8], A[p + 10])
      if times.err or times[1] >= 0 or times[2] >= 0 then why, old1 = 'off the path of the plan', nil break end
    end
    r1 = try('HSET', KEYS[k + 1], A[p + 8], A[p + 9], A[p + 10], A[p + 11])
    if r1 ~= 0 and r1 ~= 1 and type(r1) == 'table' and r1.err then why = r1.err break end
    step = 2 -- HINCRBY
    old2 = try('HMGET', KEYS[k + 2], A[p + 12])
    if old2.err then why, old2 = old2.err, nil break end
    if #(old2[1] or '') > @UNDO_BYTES then why, old2 = 'off the path of the plan', nil break end
    if fields_expire and (old2[1]) then
      local times = try('HPEXPIRETIME', KEYS[k + 2], 'FIELDS', 1, A[p + 12])
      if times.err or times[1] >= 0 then why, old2 = 'off the path of the plan', nil break end
    end
    r2 = try('HINCRBY', KEYS[k + 2], A[p + 12], A[p + 13])
    local kind = type(r2)
    if kind == 'table' and r2.err then why = r2.err break end
    if kind == 'number' and (r2 >= @TWO_53 or r2 <= -@TWO_53) then
      local exact = try('HGET', KEYS[k + 2], A[p + 12])
      r2 = type(exact) == 'string' and exact or r2
    end
    step = 3 -- SET
    old3 = try('GETRANGE', KEYS[k + 3], '0', '@UNDO_BYTES')
    if #old3 > @UNDO_BYTES then why, old3 = 'off the path of the plan', nil break end
    if #old3 == 0 then
      -- It is empty or an error.
      if old3 ~= '' then why, old3 = old3.err, nil break end
      local there = try('EXISTS', KEYS[k + 3])
      if type(there) == 'table' then why, old3 = there.err, nil break end
      old3 = there == 1 and ''
    end
    if old3 then
      at3 = try(seven and 'PEXPIRETIME' or 'PTTL', KEYS[k + 3])
      if type(at3) == 'table' or at3 >= 0 and not seven then why, old3 = 'off the path of the plan', nil break end
    end
    r3 = try('SET', KEYS[k + 3], A[p + 14])
    if r3 ~= 0 and r3 ~= 1 and type(r3) == 'table' and r3.err then why = r3.err break end
    step = 4 -- INCR
    old4 = try('STRLEN', KEYS[k + 4])
    if type(old4) ~= 'number' or old4 > 15 then
      old4 = try('GETRANGE', KEYS[k + 4], '0', '@UNDO_BYTES')
      if #old4 > @UNDO_BYTES then why, old4 = 'off the path of the plan', nil break end
      if #old4 == 0 then
        -- It is empty or an error.
        if old4 ~= '' then why, old4 = old4.err, nil break end
        local there = try('EXISTS', KEYS[k + 4])
        if type(there) == 'table' then why, old4 = there.err, nil break end
        old4 = there == 1 and ''
      end
    end
    r4 = try('INCR', KEYS[k + 4])
    local kind = type(r4)
    if kind == 'table' and r4.err then why, old4 = r4.err, nil break end
    if kind == 'number' and (r4 >= @TWO_53 or r4 <= -@TWO_53) then
      local exact = try('GET', KEYS[k + 4])
      r4 = type(exact) == 'string' and exact or r4
    end
    step = 5 -- HGET
    r5 = try('HGET', KEYS[k + 5], A[p + 15])
    if r5 ~= 0 and r5 ~= 1 and type(r5) == 'table' and r5.err then why = r5.err break end
    step = 6 -- APPEND
    r6 = try('APPEND', KEYS[k + 6], A[p + 16])
    if r6 ~= 0 and r6 ~= 1 and type(r6) == 'table' and r6.err then why = r6.err break end
  until true
  if why then
    local undo = {}
    -- _rollback.lua
    undo[1] = A[p + 4]
    undo[2] = A[p + 6]
    if old1 then undo[#undo + 1] = {{'HMGET', KEYS[k + 1], A[p + 8], A[p + 10]}, old1} end
    if old2 then undo[#undo + 1] = {{'HMGET', KEYS[k + 2], A[p + 12]}, old2} end
    if old3 == false then undo[#undo + 1] = {'UNLINK', KEYS[k + 3]} end
    if old3 and at3 >= 0 then undo[#undo + 1] = {'PEXPIREAT', KEYS[k + 3], string.format('%.0f', at3)} end
    if old3 then undo[#undo + 1] = {'SET', KEYS[k + 3], old3} end
    if old4 == 0 then
      old4 = false
    elseif type(old4) == 'number' then
      old4 = string.format('%.0f', r4 - 1)
    end
    if old4 == false then undo[#undo + 1] = {'UNLINK', KEYS[k + 4]} end
    if old4 then undo[#undo + 1] = {'SET', KEYS[k + 4], old4, 'KEEPTTL'} end
    local left = rollback()
    if not left then left = restore({'HDEL', @INBOX_A, A[p + 1]}) end
    if left then
      left = 'command ' .. step .. ': ' .. why .. '; not restored: ' .. left
      call('HSET', string.sub(@VOID, 1, -5) .. 'broken', A[p + 1], left)
      call('HSET', @INBOX_A, A[p + 1], A[p + 2] .. '!')
    end
    out[7 * i - 5] = -1
    out[7 * i - 4] = false
    out[7 * i - 3] = false
    out[7 * i - 2] = false
    out[7 * i - 1] = false
    out[7 * i] = false
    out[7 * i + 1] = false
  else
    out[7 * i - 5] = 0
    out[7 * i - 4] = r1
    out[7 * i - 3] = r2
    out[7 * i - 2] = r3
    out[7 * i - 1] = r4
    out[7 * i] = r5
    out[7 * i + 1] = r6
    woken = woken or 7 * i - 5
    ack[#ack + 1] = A[p + 3]
    added = added + #A[p + 5]
    added = added + #A[p + 7]
  end
end
local change = added - size
if woken then
  if idle or bytes % @IDLE == size then out[woken] = 2 end
  if idle then change = change + -@IDLE end
end
if change ~= 0 then try('HINCRBY', @COUNTS, 'bytes', string.format('%.0f', change)) end
if ack[4] and type(try(unpack(ack))) == 'number' then
  for i = 1, n do
    local flags = 7 * i - 5
    if out[flags] >= 0 then out[flags] = out[flags] + 1 end
  end
end
return out
