-- Purpose: puts parked events back into pending, due at once, their attempts counted anew.
-- KEYS:    1 void, 2 entries, 3 pending, 4 attempts, 5 parked
-- ARGV:    the ids
-- Reply:   how many were re-armed; ids that are not parked are left alone.
-- Bound:   linear in the arguments
-- Redis:   6.0

local count = 0
for _, id in ipairs(ARGV) do
  if redis.call('HEXISTS', KEYS[2], id) == 1 and redis.call('ZREM', KEYS[5], id) == 1 then
    redis.call('HDEL', KEYS[4], id)
    redis.call('ZADD', KEYS[3], string.format('%.0f', now), id)
    count = count + 1
  end
end
return count
