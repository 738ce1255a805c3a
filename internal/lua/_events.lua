-- Purpose: adds events to the outbox.
--
-- An event is an id, a head and a body. The head is empty (plain), k and an escaped key (ordered), or a and a time in
-- ms (scheduled).
--#needs lanes()
--#defines undo outbox open_outbox enqueue keep_events

-- What takes back what the script has done so far, oldest first: the id of a plain event, or a command; and see _undo.lua.
local undo = {nil, nil, nil, nil, step = 0}

-- Events and bytes are what is neither sent nor parked, with this script's (events is false until they are read); came
-- are those that are new to the outbox, again those that it knew; enqueued is how many ever came, before this script.
local outbox = {events = false, bytes = 0, parked = 0, came = 0}

local function open_outbox()
  local counted = redis.call('HMGET', @COUNTS, 'events', 'bytes', 'parked', 'enqueued', 'parked_bytes')
  outbox.events, outbox.bytes = tonumber(counted[1] or 0), tonumber(counted[2] or 0)
  outbox.parked, outbox.enqueued, outbox.parked_bytes = tonumber(counted[3] or 0), counted[4], tonumber(counted[5] or 0)
end

-- Adds an event. If a bound is reached, returns false and its name: events, bytes, parked, parked bytes or lane. If the
-- outbox has another body under the id, returns false alone. Adding the same event again is not an error, even after it was sent.
local function enqueue(id, head, body, score)
  local o = outbox
  if not o.events then open_outbox() end
  local bytes = o.bytes + #body
  local full = (o.events >= @CAPACITY and 'events') or (bytes > @OUTBOX_BYTES and 'bytes') or
    (o.parked >= @PARKED_CAPACITY and 'parked') or
    (o.parked_bytes >= @PARKED_BYTES and 'parked bytes') or (head ~= '' and lanes().crowded(head))
  if full and redis.call('HEXISTS', @ENTRIES, id) == 0 then return false, full end
  if redis.call('HSETNX', @ENTRIES, id, body) == 0 then
    local old = redis.call('HGET', @ENTRIES, id) -- = or !: sent, or its body erased
    local same = old == body or string.find(old, '^[=!]') and string.sub(old, 2, 41) == redis.sha1hex(body)
    if same then o.again = (o.again or 0) + 1 end
    return same or false
  end
  undo[#undo + 1] = id
  o.events, o.bytes, o.came = o.events + 1, bytes, o.came + 1
  if head == '' then
    redis.call('ZADD', @PENDING, score, id)
  else
    lanes().enter(id, head)
  end
  return true
end

-- Keeps the counts, once a script. What is committed stands, counted or not.
local function keep_events()
  if outbox.came > 0 then
    redis.pcall('HSET', @COUNTS, 'events', string.format('%d', outbox.events), 'bytes', string.format('%d', outbox.bytes),
      'enqueued', string.format('%d', (outbox.enqueued or 0) + outbox.came))
  end
  if outbox.again then redis.pcall('HINCRBY', @COUNTS, 'duplicate', outbox.again) end
end
