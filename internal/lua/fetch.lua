-- Purpose: delivers entries again to the consumer for which they are pending, and counts the delivery. It skips entries of another
--          consumer. An entry that is gone from the stream leaves the group.
-- KEYS:    1  stream
-- ARGV:    1  group
--          2  consumer
--          3- entry
-- Reply:   for each entry
--          nil                     the entry is not this consumer's
--          {deliveries, fields}    fields is nil if the entry is gone from the stream
-- Bound:   linear in the entries
-- Redis:   6.0

local STREAM, GROUP, CONSUMER = @STREAM, ARGV[1], ARGV[2]
local reply = {}
for i = 3, #ARGV do
  local id = ARGV[i]
  local pending = redis.call('XPENDING', STREAM, GROUP, id, id, 1, CONSUMER)
  if not pending[1] then
    reply[i - 2] = false
  else
    local entry = redis.call('XCLAIM', STREAM, GROUP, CONSUMER, 0, id)[1]
    if not entry then redis.call('XACK', STREAM, GROUP, id) end
    reply[i - 2] = {pending[1][4] + 1, entry and entry[2] or false}
  end
end
return reply
