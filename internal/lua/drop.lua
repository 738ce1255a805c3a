-- Purpose: deletes a key that was copied elsewhere, unless it has changed since.
-- KEYS:    1   the key
-- ARGV:    1   SHA-1 of the DUMP of the key
-- Reply:   1   the key was deleted
--          0   the key does not exist
--          -1  the key has changed
-- Bound:   linear in the size of the key
-- Redis:   6.0

local dump = redis.call('DUMP', @KEY)
if not dump then return 0 end
if redis.sha1hex(dump) ~= ARGV[1] then return -1 end
return redis.call('DEL', @KEY)
