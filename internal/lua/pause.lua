-- Purpose: pauses a destination for all relays. It removes pauses that ended so long ago that no event is held for them.
-- KEYS:    1   void
--          2   inbox:a
--          3   pauses       hash: destination → who, why, since and until as JSON, times in ms
--          4   audit
-- ARGV:    1-4 audit        see _audit.lua
--          5   destination
--          6   until        ms; empty: until it is resumed
--          7   why          without the additions of the audit
--          8   most         most destinations that may be paused
--          9   hold         how long an event is held at most, ms
-- Reply:   1   time         server time, ms
--          2   letter       d done, w the time is over already, f too many are paused; see _audit.lua
-- Bound:   linear in the pauses
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full _outbox _owned _audit

local PAUSES, DESTINATION, UNTIL = @PAUSES, ARGV[5], ARGV[6]
write_though_full()
local paused, others = redis.call('HGETALL', PAUSES), 0
local since = NOW
for i = 1, #paused, 2 do
  local ok, pause = pcall(cjson.decode, paused[i + 1])
  ok = ok and type(pause) == 'table'
  local ends = ok and tonumber(pause['until'])
  if not ok or ends and ends < now - tonumber(ARGV[9]) then
    redis.call('HDEL', PAUSES, paused[i])
  elseif paused[i] ~= DESTINATION then
    others = others + 1
  elseif not ends or ends > now then
    since = pause.since
  end
end

if UNTIL ~= '' and tonumber(UNTIL) <= now then
  answer(DESTINATION, 'w')
elseif others >= tonumber(ARGV[8]) then
  answer(DESTINATION, 'f')
else
  redis.call('HSET', PAUSES, DESTINATION, cjson.encode({who = WHO, why = ARGV[7], since = since, ['until'] = UNTIL}))
  answer(DESTINATION, 'd')
end
return finish('pause')
