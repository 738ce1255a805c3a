-- Purpose: delivers an entry once more to the consumer for which it is pending, and counts that. What is another's is left
--          alone; what is gone from the stream leaves the group.
-- KEYS:    1 stream
-- ARGV:    1 group, 2 consumer, 3 entry
-- Reply:   nothing (not this consumer's), or the number of deliveries and the fields; no fields where it is gone
-- Bound:   one entry
-- Redis:   6.0

local stream, group, consumer, id = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local pending = redis.call('XPENDING', stream, group, id, id, 1, consumer)[1]
if not pending then return {} end
local entry = redis.call('XCLAIM', stream, group, consumer, 0, id)[1]
if entry then return {pending[4] + 1, entry[2]} end
redis.call('XACK', stream, group, id)
return {pending[4] + 1}
