-- Purpose: acknowledges an entry of a stream and deletes it, in one step.
-- KEYS:    1  stream
-- ARGV:    1  group
--          2  entry
-- Reply:   number of entries deleted
-- Bound:   constant
-- Memory:  runs at maxmemory, where Redis before 7.2 refuses MULTI
-- Redis:   6.0

redis.call('XACK', @STREAM, ARGV[1], ARGV[2])
return redis.call('XDEL', @STREAM, ARGV[2])
