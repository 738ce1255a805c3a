-- Purpose: sets the idle time of entries that are still pending for the consumer. 0 keeps other consumers from claiming them
--          while the consumer works on them; a larger number gives them back to the group. The script takes nothing from
--          another consumer and counts no delivery.
-- KEYS:    1  stream
-- ARGV:    1  group
--          2  consumer
--          3  idle       ms
--          4  uncounted  1: the last delivery does not count
--          5- entry
-- Reply:   'OK'
-- Bound:   linear in the entries
-- Redis:   6.0

local STREAM, GROUP, CONSUMER = @STREAM, ARGV[1], ARGV[2]
for i = 5, #ARGV do
  local id = ARGV[i]
  local pending = redis.call('XPENDING', STREAM, GROUP, id, id, 1, CONSUMER)
  -- XCLAIM of an entry that is gone from the stream would drop it from the group, so its handler could not commit any more.
  if pending[1] and redis.call('XRANGE', STREAM, id, id)[1] then
    local deliveries = pending[1][4]
    if ARGV[4] == '1' then deliveries = math.max(deliveries - 1, 0) end
    redis.call('XCLAIM', STREAM, GROUP, CONSUMER, 0, id, 'IDLE', ARGV[3], 'RETRYCOUNT', deliveries, 'JUSTID')
  end
end
return 'OK'
