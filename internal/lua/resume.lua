-- Purpose: ends the pause of a destination. It stays noted as one that has ended, for relays that begin later: events may
--          be held for it still.
-- KEYS:    as pause.lua
-- ARGV:    1 to 4 see _audit.lua; 5 destination
-- Reply:   server time (ms), and d done or u it is not paused, see _audit.lua
-- Bound:   constant
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full _outbox _owned _audit

local PAUSES, DESTINATION = @PAUSES, ARGV[5]
write_though_full()
local ok, p = pcall(cjson.decode, redis.call('HGET', PAUSES, DESTINATION) or '')
ok = ok and type(p) == 'table'
local ends = ok and tonumber(p['until'])
if ok and (not ends or ends > now) then
  p['until'] = NOW
  redis.call('HSET', PAUSES, DESTINATION, cjson.encode(p))
  answer(DESTINATION, 'd')
else
  answer(DESTINATION, 'u')
end
return finish('resume')
