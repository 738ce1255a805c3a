-- Purpose: parks events: it takes them out of pending until an operator acts.
--
-- parked:by counts parked events by these fields:
--   d:<destination>
--   t:<type>
--   c:<class of the last failure>
--#needs _time _outbox _lanes _errors _body
--#defines fields_of tally count_first park unpark

-- Returns the fields that count a parked event, from its body and the class of its last failure.
local function fields_of(body, class)
  local ok, event = pcall(cjson.decode, body_of(body))
  local function text(name)
    local value = ok and type(event) == 'table' and event[name]
    return type(value) == 'string' and value or ''
  end
  return {'d:' .. text('destination'), 't:' .. text('type'), 'c:' .. class}
end

-- Changes the number of parked events like this one by 1 or -1.
local function tally(body, class, change)
  for _, field in ipairs(fields_of(body, class)) do
    if redis.call('HINCRBY', PARKED_BY, field, change) <= 0 then redis.call('HDEL', PARKED_BY, field) end
  end
end

-- Counts the attempt of an event's lease, from its score, if that is the first one, see _lease.lua.
local function count_first(id, score)
  if score and score < 0 and not redis.call('HGET', ATTEMPTS, id) then redis.call('HSET', ATTEMPTS, id, 1) end
end

-- Parks an event whose last failure has been noted. The event stays the head of its lane and the others wait, unless the lane
-- continues without it.
local function park(id, body, continues)
  count_first(id, tonumber(redis.call('ZSCORE', PENDING, id) or nil))
  redis.call('ZREM', PENDING, id)
  redis.call('ZADD', PARKED, NOW, id)
  tally(body, class_of(id), 1)
  count('left', 1)
  count('bytes', -size_of(body))
  count('parked_bytes', size_of(body))
  count('parkings', 1)
  if continues then leave(id) end
end

-- Removes an event from the parked ones, and reports whether it was parked. The caller moves the event on. It must not have
-- deleted the event's errors yet.
local function unpark(id, body)
  if redis.call('ZREM', PARKED, id) == 0 then return false end
  tally(body, class_of(id), -1)
  count('parked_bytes', -size_of(body))
  return true
end
