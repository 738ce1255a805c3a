-- Purpose: the pauses of destinations, those that have ended among them.
-- KEYS:    1 void, 2 pauses, see pause.lua
-- ARGV:    none
-- Reply:   server time (ms), how many, then of each destination its name and the rest
-- Bound:   linear in the pauses
-- Redis:   6.0
--#needs _time

local pauses = redis.call('HGETALL', @PAUSES)
return {NOW, #pauses / 2, unpack(pauses)}
