-- Purpose: the gauges of the outbox, in the field totals of counts.
--
-- The field holds five integers, separated by spaces, and perhaps a mark. A script reads and writes them at once:
--   events        events that are neither sent nor parked
--   bytes         of their bodies
--   left          events that are no longer among them. The sum of events and left is the number of events that were ever new to
--                 the outbox; it only grows. Commits do not change left, which makes them cheaper. It is negative if more parked
--                 events were imported and re-armed than have left
--   parked        parked events
--   parked_bytes  of their bodies
--   idle          ' idle' if the last claim has left no event that is due, and no commit has woken the relays since; else empty
--#defines totals_in totals_of

-- Returns events, bytes, the number of events that were ever new, parked, parked_bytes and the mark. If the field is missing or
-- malformed, each is 0, until a repair counts the bodies.
local function totals_in(text)
  local events, bytes, left, parked, parked_bytes, idle = string.match(text or '', '^(%d+) (%d+) (%-?%d+) (%d+) (%d+)(%D*)$')
  if not events then return 0, 0, 0, 0, 0, '' end
  return tonumber(events), tonumber(bytes), events + left, tonumber(parked), tonumber(parked_bytes), idle
end

local function totals_of(events, bytes, enqueued, parked, parked_bytes, idle)
  return string.format('%d %d %d %d %d%s', events, bytes, enqueued - events, parked, parked_bytes, idle)
end
