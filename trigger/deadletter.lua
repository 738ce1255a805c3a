-- Purpose: moves an entry that a consumer gives up to the dead letters: the copy there and the acknowledgement here are
--          one step. An entry that is another consumer's by now is left alone.
-- KEYS:    1 stream, 2 dead letters
-- ARGV:    1 group, 2 consumer, 3 entry, 4 reason, 5 how long ago (ms) it was delivered
-- Reply:   'moved', 'trimmed' (acknowledged; it is gone from the stream), or 'lost'
-- Bound:   linear in the entry
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
local head = {'dead-reason', ARGV[4], 'dead-stream', stream, 'dead-entry', id, 'dead-group', group,
  'dead-consumer', consumer, 'dead-deliveries', pending[4], 'dead-first', read, 'dead-last', read}
local texts, parts = entry[2], {}
if #texts <= 2000 then
  for _, text in ipairs(texts) do head[#head + 1] = text end
  redis.call('XADD', dead, '*', unpack(head))
else
  -- Lua hands at most 8,000 values to a command, fewer outside of Redis. An entry of more names and values becomes one value: the length of
  -- each text in bytes, a colon, and the text. Outside of Redis the same limit holds for table.concat.
  local packed = {}
  for i, text in ipairs(texts) do
    parts[#parts + 1] = #text .. ':' .. text
    if #parts == 1000 or i == #texts then
      packed[#packed + 1] = table.concat(parts)
      parts = {}
    end
  end
  redis.call('XADD', dead, '*', 'dead-packed', table.concat(packed), unpack(head))
end
redis.call('XACK', stream, group, id)
return 'moved'
