-- Purpose: one process at a time repairs, once an interval: takes, keeps or ends the turn of a process. Where its round
--          stands is kept, so that one that is cut short, by a process that dies, goes on in the next one.
-- KEYS:    1 void, 2 repair
-- ARGV:    1 who asks, 2 how long (ms) the turn is his unless he asks again; 0 ends it, 3 interval (ms), of which the
--          next turn is at most away, 4 how long (ms) until the next turn, where this one ends, 5 the slot at which his
--          round stands (empty: he has none yet)
-- Reply:   server time (ms), 1 if it is his turn, how long (ms) to wait if it is not, the slot at which the last round
--          stood (empty: there was none)
-- Bound:   constant
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full

local TURN, ME, HOLD = @REPAIR, ARGV[1], tonumber(ARGV[2])
local NOW = string.format('%.0f', now)
local state = redis.call('HMGET', TURN, 'owner', 'until', 'due', 'at')
local mine, left, due = state[1] == ME, (tonumber(state[2]) or 0) - now, (tonumber(state[3]) or 0) - now
local at = state[4] or ''

if not mine and state[1] and left > 0 then return {NOW, 0, string.format('%.0f', left), at} end
write_though_full()
if mine and ARGV[5] ~= '' then redis.call('HSET', TURN, 'at', ARGV[5]) end
if HOLD == 0 then
  if not mine then return {NOW, 0, '0', at} end
  redis.call('HDEL', TURN, 'owner', 'until')
  redis.call('HSET', TURN, 'due', string.format('%.0f', now + tonumber(ARGV[4])))
  return {NOW, 1, '0', at}
end
-- A time that is further away than the interval comes from a faster clock, or of another configuration.
if not mine and due > 0 and due <= tonumber(ARGV[3]) then return {NOW, 0, string.format('%.0f', due), at} end
redis.call('HSET', TURN, 'owner', ME, 'until', string.format('%.0f', now + HOLD))
return {NOW, 1, '0', at}
