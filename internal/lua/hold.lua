-- Purpose: says how long entries have been idle, of those alone that are still pending for the consumer: 0 keeps them
--          from being claimed while they are worked on, more gives them back to the group. Nothing is taken from
--          another consumer, and no delivery is counted.
-- KEYS:    1 stream
-- ARGV:    1 group, 2 consumer, 3 idle (ms), 4 '1': the last delivery does not count, then entries
-- Reply:   how many were still the consumer's
-- Bound:   linear in the entries
-- Redis:   6.0

local STREAM, GROUP, CONSUMER = @STREAM, ARGV[1], ARGV[2]
local held = 0
for i = 5, #ARGV do
  local id = ARGV[i]
  local pending = redis.call('XPENDING', STREAM, GROUP, id, id, 1, CONSUMER)
  -- To claim what is gone from the stream would drop it from the group: its handler could not commit any more.
  if pending[1] and redis.call('XRANGE', STREAM, id, id)[1] then
    local deliveries = pending[1][4]
    if ARGV[4] == '1' then deliveries = math.max(deliveries - 1, 0) end
    redis.call('XCLAIM', STREAM, GROUP, CONSUMER, 0, id, 'IDLE', ARGV[3], 'RETRYCOUNT', deliveries, 'JUSTID')
    held = held + 1
  end
end
return held
