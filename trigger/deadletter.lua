-- Purpose: moves an entry that a consumer gives up to the dead letters: the copy there and the acknowledgement here are
--          one step. An entry that is another consumer's by now is left alone.
-- KEYS:    1 stream, 2 dead letters
-- ARGV:    1 group, 2 consumer, 3 entry, 4 reason, 5 how long ago (ms) it was delivered
-- Reply:   'moved', 'trimmed' (acknowledged; it is gone from the stream), or 'lost'
-- Bound:   linear in the entry, which may have some 3,900 fields
-- Redis:   6.0

local stream, dead, group, consumer, id = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local pending = redis.call('XPENDING', stream, group, id, id, 1, consumer)[1]
if not pending then return 'lost' end
local entry = redis.call('XRANGE', stream, id, id)[1]
if not entry then
  redis.call('XACK', stream, group, id)
  return 'trimmed'
end
local time = redis.call('TIME')
local read = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[5])
redis.call('XADD', dead, '*', 'dead-reason', ARGV[4], 'dead-stream', stream, 'dead-entry', id, 'dead-group', group,
  'dead-consumer', consumer, 'dead-deliveries', pending[4], 'dead-first', read, 'dead-last', read, unpack(entry[2]))
redis.call('XACK', stream, group, id)
return 'moved'
