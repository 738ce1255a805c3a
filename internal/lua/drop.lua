-- Purpose: deletes a key that was copied elsewhere, unless it has changed since.
-- KEYS:    1 the key
-- ARGV:    1 the SHA-1 of what DUMP returned for it
-- Reply:   1 if it was deleted, 0 if there is none, -1 if it has changed
-- Bound:   the key's size
-- Redis:   6.0

local dump = redis.call('DUMP', @KEY)
if not dump then return 0 end
if redis.sha1hex(dump) ~= ARGV[1] then return -1 end
return redis.call('DEL', @KEY)
