-- Purpose: removes consumers that have nothing pending and were not heard of for long, and makes the caller heard of:
--          before Redis 7.2 a consumer that finds nothing to read looks idle.
-- KEYS:    1 stream
-- ARGV:    1 group, 2 the caller's consumer, 3 idle (ms)
-- Reply:   how many
-- Bound:   linear in the consumers of the group
-- Redis:   6.0

local GROUP, SELF, IDLE = ARGV[1], ARGV[2], tonumber(ARGV[3])
local LAST = '18446744073709551615-18446744073709551614' -- the id after it means new entries
redis.call('XREADGROUP', 'GROUP', GROUP, SELF, 'COUNT', 1, 'STREAMS', @STREAM, LAST)

local function pending(consumer) return redis.call('XPENDING', @STREAM, GROUP, '-', '+', 1, consumer)[1] end

local gone = 0
for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', @STREAM, GROUP)) do
  local consumer = {}
  for i = 1, #flat, 2 do consumer[flat[i]] = flat[i + 1] end
  if consumer.name ~= SELF and consumer.idle > IDLE and not pending(consumer.name) then
    redis.call('XGROUP', 'DELCONSUMER', @STREAM, GROUP, consumer.name)
    gone = gone + 1
  end
end
return gone
