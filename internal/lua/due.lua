-- Purpose: finds timers that are due, oldest first. It only reads.
-- KEYS:    1   void
--          2   inbox:a
--          3   due
-- ARGV:    1   offset   number of timers to skip
--          2   limit    most timers to return
-- Reply:   1   time     server time, ms
--          2   next due when the first timer that is not due yet will be, ms; empty: there is none
--          then for each timer
--          +1  subject
--          +2  due      ms
--          or  time, 'identity', the identity found
-- Bound:   linear in the arguments
-- Redis:   6.0
--#needs _time _owned

local function text(score) return score and string.format('%.0f', tonumber(score)) or '' end

local later = redis.call('ZRANGEBYSCORE', @DUE, '(' .. NOW, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local found = redis.call('ZRANGEBYSCORE', @DUE, '-inf', NOW, 'WITHSCORES', 'LIMIT', ARGV[1], ARGV[2])
local reply = {NOW, text(later[2])}
for i = 1, #found, 2 do
  reply[i + 2], reply[i + 3] = found[i], text(found[i + 1])
end
return reply
