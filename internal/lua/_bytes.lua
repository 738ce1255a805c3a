-- Purpose: the field bytes of counts: the size of the bodies of the events that are neither sent nor parked.
--
-- Most commits add to this field and read nothing else of the outbox. So it also contains two marks, which are numbers beyond
-- every size:
--   @IDLE    the last claim has left no event that is due, and no commit has woken the relays since
--   @HOLDS   there are parked events
--#defines bytes_in bytes_of

-- Returns the bytes and whether each mark is set. A missing or malformed field counts as 0, until a repair counts the bodies.
local function bytes_in(text)
  local n = tonumber(string.match(text or '', '^%d+$') or 0)
  return n % @IDLE, n % @HOLDS >= @IDLE, n >= @HOLDS
end

local function bytes_of(bytes, idle, holds)
  return string.format('%.0f', bytes + (idle and @IDLE or 0) + (holds and @HOLDS or 0))
end
