-- Purpose: removes consumers that have nothing pending: the caller, or all others that have been idle for long. To remove others,
--          the script first reads as the caller, because before Redis 7.2 a consumer that finds nothing to read looks idle.
-- KEYS:    1  stream
-- ARGV:    1  group
--          2  consumer  of the caller
--          3  idle      ms; empty: remove the caller
-- Reply:   number of consumers removed
-- Bound:   linear in the consumers of the group; constant for the caller
-- Redis:   6.0

local GROUP, SELF, IDLE = ARGV[1], ARGV[2], tonumber(ARGV[3])

local function remove(consumer)
  if redis.call('XPENDING', @STREAM, GROUP, '-', '+', 1, consumer)[1] then return 0 end
  redis.call('XGROUP', 'DELCONSUMER', @STREAM, GROUP, consumer)
  return 1
end

if not IDLE then return remove(SELF) end

local LAST = '18446744073709551615-18446744073709551614' -- the id after it means new entries
redis.call('XREADGROUP', 'GROUP', GROUP, SELF, 'COUNT', 1, 'STREAMS', @STREAM, LAST)

local gone = 0
for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', @STREAM, GROUP)) do
  local consumer = {}
  for i = 1, #flat, 2 do consumer[flat[i]] = flat[i + 1] end
  if consumer.name ~= SELF and consumer.idle > IDLE then gone = gone + remove(consumer.name) end
end
return gone
