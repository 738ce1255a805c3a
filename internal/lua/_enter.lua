-- Purpose: adds ordered and scheduled events to the indexes of the outbox.
--#needs _time _events _outbox _lanes
--#defines crowded enter

-- Returns lane if the lane of an event has no room for it, else false. Parked events of the lane count.
local function crowded(head)
  if string.byte(head) ~= @ORDERED then return false end
  local key = string.sub(head, 2)
  return redis.call('ZLEXCOUNT', LANES, '[' .. key .. '\0', '(' .. key .. '\1') >= @LANE_CAPACITY and 'lane'
end

-- Adds an event to the index that it belongs to, and leaves the inverse. A scheduled event has 0 attempts until a relay claims
-- it, and can be cancelled only so long.
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
