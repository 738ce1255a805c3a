-- Purpose: adds events to the outbox.
--
-- An event is an id, a head and a body. The head is one of:
--   empty                  a plain event
--   k and an escaped key   an ordered event
--   a and a time (ms)      a scheduled event
--#needs _totals lanes() large()
--#defines undo outbox open_outbox enqueue keep_events

-- The inverse of what the script has done so far, oldest first: the id of an event, or a command. See also _undo.lua.
local undo = {nil, nil, nil, nil, step = 0}

-- The counts of the outbox:
--   events    events that are neither sent nor parked, with those of this script; false until the counts are read
--   bytes     of these events
--   came      events of this script that were new to the outbox
--   again     events of this script that the outbox had already
--   enqueued  all events that were ever new, before this script
--   idle      see _totals.lua
local outbox = {events = false, bytes = 0, parked = 0, came = 0}

local function open_outbox()
  local totals = outbox
  totals.events, totals.bytes, totals.enqueued, totals.parked, totals.parked_bytes, totals.idle =
    totals_in(redis.call('HGET', @COUNTS, 'totals'))
end

-- Adds an event. If a bound is reached, returns false and its name: events, bytes, parked, parked bytes or lane; or body, if a large
-- body is gone. If the outbox has another body under the id, returns false alone. Adding the same event again is not an error,
-- even after it was sent.
local function enqueue(id, head, body, score)
  local totals = outbox
  if not totals.events then open_outbox() end
  local first, second = string.byte(body, 1, 2)
  local is_large = first == @STAGED_MARK or first == @GIVEN_MARK and second == @STAGED_MARK
  local bytes = totals.bytes + (is_large and large().size_of(body) or #body)
  local full = (totals.events >= @CAPACITY and 'events') or (bytes > @OUTBOX_BYTES and 'bytes') or
    (totals.parked >= @PARKED_CAPACITY and 'parked') or
    (totals.parked_bytes >= @PARKED_BYTES and 'parked bytes') or (head ~= '' and lanes().crowded(head))
  if full and redis.call('HEXISTS', @ENTRIES, id) == 0 then return false, full end
  if redis.call('HSETNX', @ENTRIES, id, body) == 0 then
    local old = redis.call('HGET', @ENTRIES, id)
    if is_large and not large().is_there(body) then return false, 'body' end
    local same = old == body or large().digest_of(old) == large().digest_of(body)
    if same then totals.again = (totals.again or 0) + 1 end
    return same
  end
  undo[#undo + 1] = id
  if is_large and not large().adopt_body(id, body) then return false, 'body' end
  totals.events, totals.bytes, totals.came = totals.events + 1, bytes, totals.came + 1
  if head == '' then
    redis.call('ZADD', @PENDING, score, id)
  else
    lanes().enter(id, head)
  end
  return true
end

-- Writes the counts. A script calls it once, at its end, and says whether it can wake relays. If it can, returns true if they
-- are to be woken: there was no other event, or none that was due. If the write fails, the commits stand.
local function keep_events(wakes)
  local totals, idle = outbox, false
  if totals.came > 0 then
    idle = totals.events == totals.came or totals.idle ~= ''
    redis.pcall('HSET', @COUNTS, 'totals', totals_of(totals.events, totals.bytes, totals.enqueued + totals.came,
      totals.parked, totals.parked_bytes, idle and not wakes and ' idle' or ''))
  end
  if totals.again then redis.pcall('HINCRBY', @COUNTS, 'duplicate', totals.again) end
  return idle
end
