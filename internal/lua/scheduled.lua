-- Purpose: cancels or moves a scheduled event that no relay has claimed yet.
-- KEYS:    1    void
--          2-14 outbox   the keys of the outbox, see outboxKeys in layout.go
-- ARGV:    1    id
--          2    time     the new time, ms; empty: cancel the event
-- Reply:   1    time     server time, ms
--          2    done     1 if it was done, 0 if there is no such event
--          or   time, 'identity', the identity found
-- Bound:   constant
-- Redis:   6.0
--#needs _time _full _outbox _lanes _errors _body _park _lease _owned

local id, at = ARGV[1], ARGV[2]

if redis.call('HGET', ATTEMPTS, id) ~= '0' or not redis.call('ZSCORE', PENDING, id) then return {NOW, 0} end
if at ~= '' then
  redis.call('ZADD', PENDING, at, id)
  return {NOW, 1}
end
local body = redis.call('HGET', ENTRIES, id)
if not body then return {NOW, 0} end
redis.call('ZREM', PENDING, id)
redis.call('HDEL', ATTEMPTS, id)
redis.call('HDEL', ENTRIES, id)
count('left', 1)
count('bytes', -size_of(body))
drop_body(body)
keep_counts()
return {NOW, 1}
