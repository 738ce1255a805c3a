-- Purpose: puts parked events back into pending, due at once, or behind the others of their lane; their attempts counted
--          anew.
-- KEYS:    1 void; then those of _outbox.lua
-- ARGV:    the ids
-- Reply:   how many were re-armed; ids that are not parked, and those whose bodies were erased, are left alone.
-- Bound:   linear in the arguments
-- Redis:   6.0

local armed = 0
for _, id in ipairs(ARGV) do
  local body = redis.call('HGET', ENTRIES, id)
  if body and string.byte(body) ~= 33 and unpark(id, body) then -- !
    redis.call('HDEL', ATTEMPTS, id)
    if not is_behind(id) then redis.call('ZADD', PENDING, NOW, id) end
    count('events', 1)
    count('bytes', #body)
    armed = armed + 1
  end
end
keep_counts()
return armed
