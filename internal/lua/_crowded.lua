-- Purpose: tells a compiled commit whether the outbox may lack the room for its events.
--#defines crowded

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
