-- Purpose: moves an entry that a consumer gives up to the dead-letter stream. Copy and acknowledgement are one step. The script
--          changes nothing if the entry belongs to another consumer by now. It notes the consumer for the fence of commit.lua,
--          because a late commit must not apply a dead letter.
-- KEYS:    1  stream
--          2  dead-letter stream
--          3  taken
-- ARGV:    1  group
--          2  consumer
--          3  entry
--          4  reason
--          5  last consumer   consumer of the last delivery
--          6  first delivery  how long ago, ms
--          7  last delivery   how long ago, ms
-- Reply:   'moved'    number of deliveries
--          'trimmed'  the entry is gone from the stream, and was acknowledged
--          'lost'     the entry is not pending for the consumer
-- Bound:   linear in the entry
-- Redis:   6.0
--#needs _time _taken

local STREAM, DEAD, GROUP, CONSUMER, ID = @STREAM, @DEAD, ARGV[1], ARGV[2], ARGV[3]

-- Lua passes at most 8,000 values to a command, and fewer outside of Redis. An entry with more names and values becomes one
-- value: the length of each text in bytes, a colon, and the text. Outside of Redis table.concat has the same limit.
local MOST_TEXTS, MOST_PARTS = 2000, 1000

local function pack_texts(texts)
  local packed, parts = {}, {}
  for i, text in ipairs(texts) do
    parts[#parts + 1] = #text .. ':' .. text
    if #parts == MOST_PARTS or i == #texts then
      packed[#packed + 1] = table.concat(parts)
      parts = {}
    end
  end
  return table.concat(packed)
end

local pending = redis.pcall('XPENDING', STREAM, GROUP, ID, ID, 1, CONSUMER)
if pending.err then
  return string.find(pending.err, 'NOGROUP', 1, true) and {'lost'} or pending
end
if not pending[1] then return {'lost'} end

local found = redis.call('XRANGE', STREAM, ID, ID)
if not found[1] then
  redis.call('XACK', STREAM, GROUP, ID)
  return {'trimmed'}
end

note_taken(GROUP, {[CONSUMER] = true})
local function ago(ms) return string.format('%.0f', now - tonumber(ms)) end
local deliveries = pending[1][4]
-- The reader recognizes these fields by their place: they come first, and there are always as many.
local head = {'dead-reason', ARGV[4], 'dead-stream', STREAM, 'dead-entry', ID, 'dead-group', GROUP,
  'dead-consumer', ARGV[5], 'dead-deliveries', deliveries, 'dead-first', ago(ARGV[6]), 'dead-last', ago(ARGV[7])}
local texts = found[1][2]
if #texts <= MOST_TEXTS then
  for _, text in ipairs(texts) do head[#head + 1] = text end
  redis.call('XADD', DEAD, '*', unpack(head))
else
  redis.call('XADD', DEAD, '*', 'dead-packed', pack_texts(texts), unpack(head))
end
redis.call('XACK', STREAM, GROUP, ID)
return {'moved', deliveries}
