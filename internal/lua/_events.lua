-- Purpose: adds events to the outbox.
--
-- An event is an id, a head and a body. The head is one of:
--   empty                  a plain event
--   k and an escaped key   an ordered event
--   a and a time (ms)      a scheduled event
--#needs _bytes lanes() large()
--#defines undo outbox open_outbox has_room enqueue keep_events

-- The inverse of what the script has done so far, oldest first: the id of an event, or a command. See also _undo.lua.
local undo = {nil, nil, nil, nil, step = 0}

-- The state of the outbox, as far as the script knows it:
--   events        number of events that are neither sent nor parked, with those of this script; false until it is read. It may be too
--                 high until it matters, see has_room
--   before        bytes of these events before this script
--   bytes         with those of this script
--   idle          see _bytes.lua
--   parked        parked events
--   parked_bytes  of their bodies
--   came          events of this script that were new to the outbox
--   again         events of this script that the outbox had already
local outbox = {events = false, bytes = 0, parked = 0, came = 0}

local function open_outbox()
  local o, holds = outbox, nil
  o.bytes, o.idle, holds = bytes_in(redis.call('HGET', @COUNTS, 'bytes'))
  o.before, o.parked, o.parked_bytes = o.bytes, 0, 0
  if holds then
    o.parked = redis.call('ZCARD', string.sub(@VOID, 1, -5) .. 'parked')
    o.parked_bytes = tonumber(redis.call('HGET', @COUNTS, 'parked_bytes') or 0) or 0
  end
  local bodies = redis.pcall('HLEN', @ENTRIES)
  o.events = type(bodies) == 'number' and bodies or 0 -- in an outbox of another type, the first event fails
end

-- Reports whether the outbox may have so many events more. entries also has the bodies of parked and sent events.
local function has_room(more)
  local o, shard = outbox, string.sub(@VOID, 1, -5)
  if o.events + more > @CAPACITY and not o.exact then
    for _, name in ipairs({'parked', 'sent'}) do
      local n = redis.pcall('ZCARD', shard .. name)
      if type(n) == 'number' then o.events = o.events - n end
    end
    o.exact = true
  end
  return o.events + more <= @CAPACITY
end

-- Adds an event. If a bound is reached, returns false and its name: events, bytes, parked, parked bytes or lane; or body, if a large
-- body is gone. If the outbox has another body under the id, returns false alone. Adding the same event again is not an error,
-- even after it was sent.
local function enqueue(id, head, body, score)
  local o = outbox
  if not o.events then open_outbox() end
  local first, second = string.byte(body, 1, 2)
  local is_large = first == @STAGED_MARK or first == @GIVEN_MARK and second == @STAGED_MARK
  local bytes = o.bytes + (is_large and large().size_of(body) or #body)
  local full = (o.events >= @CAPACITY and not has_room(1) and 'events') or (bytes > @OUTBOX_BYTES and 'bytes') or
    (o.parked >= @PARKED_CAPACITY and 'parked') or
    (o.parked_bytes >= @PARKED_BYTES and 'parked bytes') or (head ~= '' and lanes().crowded(head))
  if full and redis.call('HEXISTS', @ENTRIES, id) == 0 then return false, full end
  if redis.call('HSETNX', @ENTRIES, id, body) == 0 then
    local old = redis.call('HGET', @ENTRIES, id)
    if is_large and not large().is_there(body) then return false, 'body' end
    local same = old == body or large().digest_of(old) == large().digest_of(body)
    if same then o.again = (o.again or 0) + 1 end
    return same
  end
  undo[#undo + 1] = id
  if is_large and not large().adopt_body(id, body) then return false, 'body' end
  o.events, o.bytes, o.came = o.events + 1, bytes, o.came + 1
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
  local o, idle = outbox, false
  if o.came > 0 then
    idle = o.before == 0 or o.idle
    local change = o.bytes - o.before
    if wakes and o.idle then change = change - @IDLE end
    if not wakes and idle and not o.idle then change = change + @IDLE end
    if type(redis.pcall('HINCRBY', @COUNTS, 'bytes', string.format('%.0f', change))) ~= 'number' then
      redis.pcall('HSET', @COUNTS, 'bytes', bytes_of(o.bytes, idle and not wakes, o.parked > 0)) -- it was malformed
    end
  end
  if o.again then redis.pcall('HINCRBY', @COUNTS, 'duplicate', o.again) end
  return idle
end
