-- Purpose: events that are ordered or scheduled enter the outbox.
--#needs _time _events _outbox _lanes
--#defines crowded enter

-- What has no room for another event of its lane, parked ones included: lane, or false.
local function crowded(head)
  if string.byte(head) ~= @ORDERED then return false end
  local key = string.sub(head, 2)
  return redis.call('ZLEXCOUNT', LANES, '[' .. key .. '\0', '(' .. key .. '\1') >= @LANE_CAPACITY and 'lane'
end

-- Puts an event into the index that it belongs to, and leaves the inverse. A scheduled one has 0 attempts until a relay
-- takes it: only so can it be cancelled.
local function enter(id, head)
  local rest = string.sub(head, 2)
  if string.byte(head) == @SCHEDULED then
    redis.call('ZADD', PENDING, rest, id)
    redis.call('HSET', ATTEMPTS, id, 0)
    undo[#undo + 1] = {'HDEL', ATTEMPTS, id}
    return
  end
  local sequence = string.format('%016.0f', redis.call('INCR', SEQ))
  local member = rest .. '\0' .. sequence .. '\0' .. id
  local waits = first_of(rest)
  redis.call('ZADD', LANES, 0, member)
  undo[#undo + 1] = {'ZREM', LANES, member}
  redis.call('HSET', HEADERS, id, sequence .. rest)
  undo[#undo + 1] = {'HDEL', HEADERS, id}
  if not waits then redis.call('ZADD', PENDING, NOW, id) end
end
