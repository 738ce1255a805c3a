-- Purpose: lets one process at a time repair, once per interval: it begins, extends or ends the turn of a process. It stores the
--          position of the round, so that another process can continue the round of a process that died.
-- KEYS:    1  void
--          2  repair
-- ARGV:    1  process    that asks
--          2  hold       how long the turn lasts unless the process asks again, ms; 0: end it
--          3  interval   the next turn is at most this far away, ms
--          4  pause      how long until the next turn when this one ends, ms
--          5  slot       position of the process's round; empty: it has none yet
-- Reply:   1  time       server time, ms
--          2  granted    1 if it is the process's turn, else 0
--          3  wait       how long to wait if it is not, ms
--          4  slot       position of the last round; empty: there was none
-- Bound:   constant
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full

local TURN, ME, HOLD = @REPAIR, ARGV[1], tonumber(ARGV[2])
local NOW = string.format('%.0f', now)
local state = redis.call('HMGET', TURN, 'owner', 'until', 'due', 'at')
local mine, left, due = state[1] == ME, (tonumber(state[2]) or 0) - now, (tonumber(state[3]) or 0) - now
local slot = state[4] or ''

if not mine and left > 0 then return {NOW, 0, string.format('%.0f', left), slot} end
write_though_full()
if mine and ARGV[5] ~= '' then redis.call('HSET', TURN, 'at', ARGV[5]) end
if HOLD == 0 then
  if not mine then return {NOW, 0, '0', slot} end
  redis.call('HDEL', TURN, 'owner', 'until')
  redis.call('HSET', TURN, 'due', string.format('%.0f', now + tonumber(ARGV[4])))
  return {NOW, 1, '0', slot}
end
-- A time that is further away than the interval comes from a faster clock or another configuration.
if not mine and due > 0 and due <= tonumber(ARGV[3]) then return {NOW, 0, string.format('%.0f', due), slot} end
redis.call('HSET', TURN, 'owner', ME, 'until', string.format('%.0f', now + HOLD))
return {NOW, 1, '0', slot}
