-- Purpose: re-arms parked events: they are due at once, or wait behind the others of their lane. Their attempts are counted from
--          the beginning again, and their history stays.
-- KEYS:    1    void
--          2-14 outbox       the keys of the outbox, see outboxKeys in layout.go
--          15   audit
-- ARGV:    1-4  audit        see _audit.lua
--          5    cut-off      an event that was parked later stays parked, ms; empty: none
--          6    destination  empty: as before
--          7-   id           of each event
-- Reply:   1    time         server time, ms
--          2    letters      one for each id, see _audit.lua
-- Bound:   linear in the arguments
-- Redis:   6.0
--#needs _time _full _outbox _lanes _errors _body _park _lease _owned _audit

local FIRST = 7
local cutoff, route = tonumber(ARGV[5]), ARGV[6]
local events = redis.call('HLEN', ENTRIES) - redis.call('ZCARD', PARKED) - redis.call('ZCARD', SENT)
local bytes = bytes_in(redis.call('HGET', COUNTS, 'bytes'))
local bodies = redis.call('HMGET', ENTRIES, unpack(ARGV, FIRST))

local function rearm(id, body)
  if not body then return 'u' end
  local parked = redis.call('ZSCORE', PARKED, id)
  if not parked or string.byte(body, 1) == @SENT_MARK then return 'w' end
  if string.byte(body, 1) == @ERASED_MARK then return 'e' end
  if cutoff and tonumber(parked) > cutoff then return 'n' end
  if events >= @CAPACITY or bytes + size_of(body) > @OUTBOX_BYTES then return 'f' end
  unpark(id, body)
  redis.call('HDEL', ATTEMPTS, id)
  if route ~= '' then redis.call('HSET', ROUTES, id, route) end
  if not is_behind(id) then redis.call('ZADD', PENDING, NOW, id) end
  events, bytes = events + 1, bytes + size_of(body)
  count('left', -1)
  count('bytes', size_of(body))
  return 'd'
end

for i, body in ipairs(bodies) do
  local id = ARGV[FIRST + i - 1]
  answer(id, rearm(id, body))
end
keep_counts()
return finish('rearm')
