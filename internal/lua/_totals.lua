-- Purpose: the gauges of the outbox, in the field totals of counts.
--
-- The field holds five integers, separated by spaces. A script reads and writes them at once:
--   events        events that are neither sent nor parked
--   bytes         of their bodies
--   enqueued      events that were ever new to the outbox; it only grows
--   parked        parked events
--   parked_bytes  of their bodies
--#defines totals_in totals_of

-- Returns the integers. If the field is missing or malformed, each is 0, until a repair counts the bodies.
local function totals_in(text)
  local events, bytes, enqueued, parked, parked_bytes = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not events then return 0, 0, 0, 0, 0 end
  return tonumber(events), tonumber(bytes), tonumber(enqueued), tonumber(parked), tonumber(parked_bytes)
end

local function totals_of(...) return string.format('%d %d %d %d %d', ...) end
