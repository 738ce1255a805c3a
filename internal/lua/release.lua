-- Purpose: deletes the mark of a SET NX inbox after its handler has failed, unless the mark belongs to another delivery.
-- KEYS:    1  the mark
-- ARGV:    1  the token it was set with
-- Reply:   1  the mark was deleted
--          0  the mark has another token, or does not exist
-- Bound:   constant
-- Redis:   6.0

if redis.call('GET', @MARK) == ARGV[1] then return redis.call('DEL', @MARK) end
return 0
