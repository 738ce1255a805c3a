-- Purpose: takes back the mark of a SET NX inbox after its handler has failed, unless the mark is another's.
-- KEYS:    1 the mark
-- ARGV:    1 the token it was set with
-- Reply:   1 if it was deleted, else 0
-- Bound:   constant
-- Redis:   6.0

if redis.call('GET', @MARK) == ARGV[1] then return redis.call('DEL', @MARK) end
return 0
