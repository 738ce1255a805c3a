-- Purpose: the counts of a shard, added up anew from the bodies while a look passes over them. What the steps before have added up stands in
-- ARGV[5] and the following, and goes on in the reply: the version, how many bodies were seen, events, bytes, parked and parked_bytes; then
-- the fields of parked:by, each with its number.
--#needs _errors _park _repair
--#defines counts total sum sums

local FIRST = 5

-- Changes with every act on the outbox: a sum is worth something only where that stood still.
local function version()
  local known = redis.call('HMGET', key.counts, 'events', 'bytes', 'parked', 'parked_bytes', 'enqueued', 'sent', 'parkings',
    'discarded', 'erased', 'imported')
  for i = 1, #known do known[i] = tostring(known[i]) end
  return table.concat(known, ',')
end

local counted = outbox and sound.counts and sound['parked:by'] and sound.errors
local began = ARGV[FIRST] or counted and version() or ''
local total = {seen = tonumber(ARGV[FIRST + 1]) or 0}
local gauges, by = {'events', 'bytes', 'parked', 'parked_bytes'}, {}
for i, name in ipairs(gauges) do total[name] = tonumber(ARGV[FIRST + 1 + i]) or 0 end
for i = FIRST + 6, #ARGV, 2 do by[ARGV[i]] = tonumber(ARGV[i + 1]) end

-- Adds an event that was not sent.
local function sum(id, body, parked)
  if not counted then return end
  if not parked then
    total.events, total.bytes = total.events + 1, total.bytes + #body
    return
  end
  total.parked, total.parked_bytes = total.parked + 1, total.parked_bytes + #body
  for _, field in ipairs(fields_of(body, class_of(id))) do by[field] = (by[field] or 0) + 1 end
end

-- What the next step goes on with.
local function sums()
  local list = {began, total.seen, total.events, total.bytes, total.parked, total.parked_bytes}
  for field, n in pairs(by) do list[#list + 1], list[#list + 2] = field, n end
  return list
end

local function compare(name, field, has, is)
  is = string.format('%.0f', is)
  if (has or '0') ~= is then settle('value', name, field, has or '', 'HSET', key[name], field, is) end
end

-- Holds the counts against the sums, unless the outbox did not stand still, or a step has seen a body twice.
local function counts()
  if not counted or began ~= version() or total.seen ~= redis.call('HLEN', key.entries) then return end
  for _, name in ipairs(gauges) do compare('counts', name, redis.call('HGET', key.counts, name), total[name]) end
  local flat, has = redis.call('HGETALL', key['parked:by']), {}
  for i = 1, #flat, 2 do
    has[flat[i]] = flat[i + 1]
    if not by[flat[i]] then settle('value', 'parked:by', flat[i], flat[i + 1], 'HDEL', key['parked:by'], flat[i]) end
  end
  for field, n in pairs(by) do compare('parked:by', field, has[field], n) end
end
