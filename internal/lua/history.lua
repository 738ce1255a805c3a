-- Purpose: adds to the history of a namespace: counts of events by destination and of failures by class, and measurements of the
--          outbox. It adds to two intervals at once, one of 10 seconds and one of 15 minutes, each a hash with an expiry. It also
--          hands out the next measurement, so that one process measures for all.
-- KEYS:    1  void
--          2  history      hash: sampled (when a process began the last measurement, ms)
--          3  history:10s  hash of the interval of 10 seconds, followed by a colon and the number of the interval since 1970: d:
--                          and a destination -> events sent, failed, returned and parked; c: and a class -> failures; d and c
--                          alone -> the sums of those beyond the room; other fields -> the highest measurement
--          4  history:15m  the same of 15 minutes
-- ARGV:    1  number       of the interval of 10 seconds that the caller takes for the current one
--          2  number       of that of 15 minutes
--          3  pause        least time between two measurements, ms; 0: the caller does not measure
--          4… pairs        a field and what to add to it, or a measurement
-- Reply:   1  time         server time, ms
--          2  state        done; elsewhen: other intervals are current, and nothing was added
--          3  turn         1 if the caller is to measure, else 0
-- Bound:   linear in the pairs
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full

local HISTORY, PAUSE = @HISTORY, tonumber(ARGV[3])
local SECOND, MINUTE, HOUR = 1000, 60000, 3600000
local FIRST_PAIR = 4
-- The most bytes of named destinations (d) and classes (c) in an interval, and the bytes that a row needs beside its field.
local ROOM, ROW = {d = 650, c = 190}, {d = 36, c = 10}

local function kind_of(field)
  if field == 'd' or field == 'c' then return field end
  return string.match(field, '^([dc]):')
end

local function sum(old, new)
  local sums, i = {}, 0
  for n in string.gmatch(old, '%d+') do sums[#sums + 1] = tonumber(n) end
  for n in string.gmatch(new, '%d+') do
    i = i + 1
    sums[i] = string.format('%.0f', (sums[i] or 0) + tonumber(n))
  end
  return table.concat(sums, ' ')
end

local function add(bucket, expires)
  local row, left = {}, {d = ROOM.d, c = ROOM.c}
  local function takes(field, kind)
    local room = left[kind] - #field - ROW[kind]
    if room < 0 then return false end
    left[kind] = room
    return true
  end
  local stored = redis.call('HGETALL', bucket)
  for i = 1, #stored, 2 do
    local kind = kind_of(stored[i])
    row[stored[i]] = stored[i + 1]
    if kind and kind ~= stored[i] then takes(stored[i], kind) end
  end
  local changed = {}
  for i = FIRST_PAIR, #ARGV, 2 do
    local field, value = ARGV[i], ARGV[i + 1]
    local kind = kind_of(field)
    if kind and kind ~= field and not row[field] and not takes(field, kind) then field = kind end
    if not row[field] then
      row[field] = value
    elseif kind then
      row[field] = sum(row[field], value)
    elseif tonumber(value) > tonumber(row[field]) then
      row[field] = value
    end
    changed[field] = true
  end
  local pairs_of = {}
  for field in pairs(changed) do
    pairs_of[#pairs_of + 1] = field
    pairs_of[#pairs_of + 1] = row[field]
  end
  redis.call('HSET', bucket, unpack(pairs_of))
  if #stored == 0 then redis.call('PEXPIREAT', bucket, string.format('%.0f', expires)) end
end

local fine, coarse = math.floor(now / (10 * SECOND)), math.floor(now / (15 * MINUTE))
if fine ~= tonumber(ARGV[1]) or coarse ~= tonumber(ARGV[2]) then return {NOW, 'elsewhen', 0} end

write_though_full()
if #ARGV >= FIRST_PAIR then
  redis.call('PEXPIREAT', @VOID, 1) -- fails before the first write if the user may not set an expiry
  add(@HISTORY_10S, (fine + 1) * 10 * SECOND + HOUR)
  add(@HISTORY_15M, (coarse + 1) * 15 * MINUTE + 30 * 24 * HOUR)
end

local turn = 0
if PAUSE > 0 then
  local last = tonumber(redis.call('HGET', HISTORY, 'sampled') or 0)
  if now - last >= PAUSE or now < last then -- the clock may have been set back
    turn = 1
    redis.call('HSET', HISTORY, 'sampled', NOW)
  end
end
return {NOW, 'done', turn}
