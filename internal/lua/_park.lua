-- Purpose: parked events: out of pending until a person acts.
--
-- parked:by counts them by destination (d:), type (t:) and class (c:).
--#needs _time _outbox _lanes _errors
--#defines fields_of tally park unpark

-- The fields that count a parked event, by what its body says and by the class of its last failure.
local function fields_of(body, class)
  local ok, event = pcall(cjson.decode, body)
  local function text(name)
    local value = ok and type(event) == 'table' and event[name]
    return type(value) == 'string' and value or ''
  end
  return {'d:' .. text('destination'), 't:' .. text('type'), 'c:' .. class}
end

-- Counts a parked event in or out.
local function tally(body, class, n)
  for _, field in ipairs(fields_of(body, class)) do
    if redis.call('HINCRBY', PARKED_BY, field, n) <= 0 then redis.call('HDEL', PARKED_BY, field) end
  end
end

-- Parks an event whose last failure has been noted. In a lane it stays the head, and the others wait; or the lane
-- continues without it.
local function park(id, body, continues)
  redis.call('ZREM', PENDING, id)
  redis.call('ZADD', PARKED, NOW, id)
  if redis.call('HDEL', LEASES, id) == 1 and not redis.call('HGET', ATTEMPTS, id) then
    redis.call('HSET', ATTEMPTS, id, 1) -- the first one, see _lease.lua
  end
  tally(body, class_of(id), 1)
  count('events', -1)
  count('bytes', -#body)
  count('parked', 1)
  count('parked_bytes', #body)
  count('parkings', 1)
  if continues then leave(id) end
end

-- Takes an event out of the parked ones, and reports whether it was one. What becomes of it is the caller's to do; its
-- errors must still be there.
local function unpark(id, body)
  if redis.call('ZREM', PARKED, id) == 0 then return false end
  tally(body, class_of(id), -1)
  count('parked', -1)
  count('parked_bytes', -#body)
  return true
end
