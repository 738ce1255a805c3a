-- Purpose: ends the pause of a destination. The ended pause stays in the hash, because relays that start later may still find
--          events that are held for it.
-- KEYS:    those of pause.lua
-- ARGV:    1-4 audit        see _audit.lua
--          5   destination
-- Reply:   1   time         server time, ms
--          2   letter       d done, u it is not paused; see _audit.lua
-- Bound:   constant
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full _outbox _owned _audit

local PAUSES, DESTINATION = @PAUSES, ARGV[5]
write_though_full()
local ok, pause = pcall(cjson.decode, redis.call('HGET', PAUSES, DESTINATION) or '')
ok = ok and type(pause) == 'table'
local ends = ok and tonumber(pause['until'])
if ok and (not ends or ends > now) then
  pause['until'] = NOW
  redis.call('HSET', PAUSES, DESTINATION, cjson.encode(pause))
  answer(DESTINATION, 'd')
else
  answer(DESTINATION, 'u')
end
return finish('resume')
