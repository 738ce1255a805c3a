-- Purpose: events on their way into the outbox. Expects NOW, the keys entries, pending and counts as KEYS[4], KEYS[5] and
-- KEYS[7], CAPACITY, OUTBOX_BYTES, PARKED_CAPACITY and PARKED_BYTES, and for events that are not plain lanes(), see _enter.lua.
--
-- An event is an id, a head and a body. The head is empty (plain), k and an escaped key (ordered), or a and a time in
-- ms (scheduled).

-- What takes back what the script has done so far, oldest first: the id of a plain event, or a command; and see _undo.lua.
local undo = {nil, nil, nil, nil, step = 0}

-- Events and bytes are what is neither sent nor parked, with this script's (events is false until they are read); came
-- are those that are new to the outbox, again those that it knew; enqueued is how many ever came, before this script.
local outbox = {events = false, bytes = 0, parked = 0, came = 0}

local function open_outbox()
  local counted = redis.call('HMGET', KEYS[7], 'events', 'bytes', 'parked', 'enqueued', 'parked_bytes')
  outbox.events, outbox.bytes = tonumber(counted[1] or 0), tonumber(counted[2] or 0)
  outbox.parked, outbox.enqueued, outbox.parked_bytes = tonumber(counted[3] or 0), counted[4], tonumber(counted[5] or 0)
end

-- Adds an event. If a bound is reached, returns false and its name: events, bytes, parked, parked bytes or lane. If the
-- outbox has another body under the id, returns false alone. Adding the same event again is not an error, even after it was sent.
local function enqueue(id, head, body, score)
  local o = outbox
  if not o.events then open_outbox() end
  local bytes = o.bytes + #body
  local full = (o.events >= CAPACITY and 'events') or (bytes > OUTBOX_BYTES and 'bytes') or
    (o.parked >= PARKED_CAPACITY and 'parked') or
    (o.parked_bytes >= PARKED_BYTES and 'parked bytes') or (head ~= '' and lanes().crowded(head))
  if full and redis.call('HEXISTS', KEYS[4], id) == 0 then return false, full end
  if redis.call('HSETNX', KEYS[4], id, body) == 0 then
    local old = redis.call('HGET', KEYS[4], id) -- = or !: sent, or its body erased
    local same = old == body or string.find(old, '^[=!]') and string.sub(old, 2, 41) == redis.sha1hex(body)
    if same then o.again = (o.again or 0) + 1 end
    return same or false
  end
  undo[#undo + 1] = id
  o.events, o.bytes, o.came = o.events + 1, bytes, o.came + 1
  if head == '' then
    redis.call('ZADD', KEYS[5], score, id)
  else
    lanes().enter(id, head)
  end
  return true
end

-- Keeps the counts, once a script. What is committed stands, counted or not.
local function keep_events()
  if outbox.came > 0 then
    redis.pcall('HSET', KEYS[7], 'events', string.format('%d', outbox.events), 'bytes', string.format('%d', outbox.bytes),
      'enqueued', string.format('%d', (outbox.enqueued or 0) + outbox.came))
  end
  if outbox.again then redis.pcall('HINCRBY', KEYS[7], 'duplicate', outbox.again) end
end
