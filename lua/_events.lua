-- Purpose: events on their way into the outbox. Expects NOW, the keys entries, pending and counts as KEYS[4], KEYS[5] and
-- KEYS[7], CAPACITY, OUTBOX_BYTES and PARKED_CAPACITY, and for events that are not plain lanes(), see _enter.lua.
--
-- An event is an id, a head and a body. The head is empty (plain), k and an escaped key (ordered), or a and a time in
-- ms (scheduled).

local ENTRIES, PENDING, COUNTS = KEYS[4], KEYS[5], KEYS[7]
local counted = redis.call('HMGET', COUNTS, 'events', 'bytes', 'parked', 'enqueued')
local events, bytes = tonumber(counted[1]) or 0, tonumber(counted[2]) or 0 -- neither sent nor parked, with this script's
local parked, before = tonumber(counted[3]) or 0, events
local came, again = 0, 0 -- new to the outbox by this script, and known to it
local enqueued, entered = {}, nil -- what this transaction has to withdraw: events; commands, where they were not plain

-- Adds an event. Returns false where it cannot be: with what is full (events, bytes, parked or lane), or, its id being
-- known with another body, with nothing. The same event again, sent already or not, is no error.
local function enqueue(id, head, body, score)
  local size = #body
  local full = (events >= CAPACITY and 'events') or (bytes + size > OUTBOX_BYTES and 'bytes') or
    (parked >= PARKED_CAPACITY and 'parked') or (head ~= '' and lanes().crowded(head))
  if full and redis.call('HEXISTS', ENTRIES, id) == 0 then return false, full end
  if redis.call('HSETNX', ENTRIES, id, body) == 0 then
    local old = redis.call('HGET', ENTRIES, id) -- = or !: sent, or its body erased
    local same = old == body or string.find(old, '^[=!]') and string.sub(old, 2, 41) == redis.sha1hex(body)
    if same then again = again + 1 end
    return same or false
  end
  enqueued[#enqueued + 1] = id
  events, bytes, came = events + 1, bytes + size, came + 1
  if head == '' then
    redis.call('ZADD', PENDING, score, id)
  else
    lanes().enter(id, head)
  end
  return true
end

-- Keeps the counts, once a script. What is committed stands, counted or not.
local function keep_events()
  if came > 0 then
    redis.pcall('HSET', COUNTS, 'events', events, 'bytes', bytes, 'enqueued', (tonumber(counted[4]) or 0) + came)
  end
  if again > 0 then redis.pcall('HINCRBY', COUNTS, 'duplicate', again) end
end
