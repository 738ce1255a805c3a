-- Purpose: returns the pauses of destinations, including those that have ended.
-- KEYS:    1  void
--          2  pauses       see pause.lua
-- ARGV:    none
-- Reply:   1  time         server time, ms
--          2  count        number of pauses
--          then for each pause
--          +1 destination
--          +2 pause        JSON, see pause.lua
-- Bound:   linear in the pauses
-- Redis:   6.0
--#needs _time

local pauses = redis.call('HGETALL', @PAUSES)
return {NOW, #pauses / 2, unpack(pauses)}
