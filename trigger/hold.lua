-- Purpose: says how long entries have been idle, of those alone that are still pending for the consumer: 0 keeps them from
--          being claimed while they are worked on, more offers them to others. No delivery is counted.
-- KEYS:    1 stream
-- ARGV:    1 group, 2 consumer, 3 idle (ms), then entries
-- Reply:   how many were still the consumer's
-- Bound:   linear in the entries
-- Redis:   6.0

local stream, group, consumer, idle = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local held = 0
for i = 4, #ARGV do
  local id = ARGV[i]
  local pending = redis.call('XPENDING', stream, group, id, id, 1, consumer)[1]
  -- To claim what is gone from the stream would drop it from the group: a commit of it would be fenced.
  if pending and redis.call('XRANGE', stream, id, id)[1] then
    redis.call('XCLAIM', stream, group, consumer, 0, id, 'IDLE', idle, 'RETRYCOUNT', pending[4], 'JUSTID')
    held = held + 1
  end
end
return held
