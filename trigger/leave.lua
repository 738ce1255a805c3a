-- Purpose: removes consumers that have nothing pending: the caller's own, or all others that were not heard of for long.
--          One that lives after all is made again by its next read.
-- KEYS:    1 stream
-- ARGV:    1 group, 2 the caller's consumer, 3 idle (ms); -1: the caller's own
-- Reply:   how many
-- Bound:   linear in the consumers of the group
-- Redis:   6.0

local stream, group, self, idle = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local gone = 0
for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  local consumer = {}
  for i = 1, #flat, 2 do consumer[flat[i]] = flat[i + 1] end
  local chosen = consumer.name ~= self and consumer.idle > idle
  if idle < 0 then chosen = consumer.name == self end
  if chosen and not redis.call('XPENDING', stream, group, '-', '+', 1, consumer.name)[1] then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer.name)
    gone = gone + 1
  end
end
return gone
