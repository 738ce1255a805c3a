-- Purpose: recomputes the counts of a shard from the bodies, over all steps of a repair.
--
-- A step gets the sums of the steps before it in ARGV, and returns its own in the reply:
--   5   version of the outbox when the repair began
--   6   number of bodies seen
--   7   bytes
--   8   number of parked events
--   9   parked_bytes
--   then for each field of parked:by
--   +1  field
--   +2  number
--#needs _bytes _errors _body _park _repair
--#defines counts total sum sums

local FIRST = 5

-- Returns a text that changes with every change of the outbox. Sums are valid only if it stays the same.
local function version()
  local values = redis.call('HMGET', key.counts, 'bytes', 'left', 'sent', 'parkings', 'discarded', 'erased', 'imported', 'replayed')
  for i = 1, #values do values[i] = tostring(values[i]) end
  return table.concat(values, ',')
end

local counted = outbox and sound.counts and sound['parked:by'] and sound.errors
local began = ARGV[FIRST] or counted and version() or ''
local total = {seen = tonumber(ARGV[FIRST + 1]) or 0}
local parked_by = {}
for i, name in ipairs({'bytes', 'parked', 'parked_bytes'}) do total[name] = tonumber(ARGV[FIRST + 1 + i]) or 0 end
for i = FIRST + 5, #ARGV, 2 do parked_by[ARGV[i]] = tonumber(ARGV[i + 1]) end

-- Adds an event that was not sent to the sums.
local function sum(id, body, parked)
  if not counted then return end
  if not parked then
    total.bytes = total.bytes + size_of(body)
    return
  end
  total.parked, total.parked_bytes = total.parked + 1, total.parked_bytes + size_of(body)
  for _, field in ipairs(fields_of(body, class_of(id))) do parked_by[field] = (parked_by[field] or 0) + 1 end
end

-- Returns the sums for the next step.
local function sums()
  local list = {began, total.seen, total.bytes, total.parked, total.parked_bytes}
  for field, n in pairs(parked_by) do list[#list + 1], list[#list + 2] = field, n end
  return list
end

-- Compares a field with a sum; zero is what a missing one counts as.
local function compare(name, field, stored, summed, zero)
  if (stored or zero) ~= summed then settle('value', name, field, stored or '', 'HSET', key[name], field, summed) end
end

-- Compares the counts with the sums, unless the outbox has changed or a step has seen a body twice.
local function counts()
  if not counted or began ~= version() or total.seen ~= redis.call('HLEN', key.entries) then return end
  local bytes, parked_bytes = unpack(redis.call('HMGET', key.counts, 'bytes', 'parked_bytes'))
  local _, idle = bytes_in(bytes)
  compare('counts', 'bytes', bytes, bytes_of(total.bytes, idle, total.parked > 0), '0')
  compare('counts', 'parked_bytes', parked_bytes, string.format('%.0f', total.parked_bytes), '0')
  local flat, stored = redis.call('HGETALL', key['parked:by']), {}
  for i = 1, #flat, 2 do
    stored[flat[i]] = flat[i + 1]
    if not parked_by[flat[i]] then settle('value', 'parked:by', flat[i], flat[i + 1], 'HDEL', key['parked:by'], flat[i]) end
  end
  for field, n in pairs(parked_by) do compare('parked:by', field, stored[field], string.format('%d', n), '0') end
end
