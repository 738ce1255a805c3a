-- Purpose: puts an entry of a dead-letter stream back at the end of the stream that it came from.
-- KEYS:    1  dead-letter stream
--          2  stream
-- ARGV:    1  entry of the dead-letter stream
-- Reply:   id of the new entry, or nil if there is no such entry
-- Bound:   linear in the entry; the client puts back an entry that deadletter.lua has packed
-- Redis:   6.0

local found = redis.call('XRANGE', @DEAD, ARGV[1], ARGV[1])
if not found[1] then return false end
local fields = found[1][2]
-- The first 16 are the names and values that deadletter.lua has added.
if fields[1] ~= 'dead-reason' or fields[4] ~= @STREAM then
  return redis.error_reply('ERR not a dead letter of this stream')
end
local id = redis.call('XADD', @STREAM, '*', unpack(fields, 17))
redis.call('XDEL', @DEAD, ARGV[1])
return id
