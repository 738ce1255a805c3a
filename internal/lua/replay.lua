-- Purpose: puts sent events whose bodies were kept back into pending, due at once. They are published outside of their lanes.
-- KEYS:    1    void
--          2-14 outbox   the keys of the outbox, see outboxKeys in layout.go
--          15   audit
-- ARGV:    1-4  audit    see _audit.lua
--          5    cut-off  an event that was sent later stays, ms
--          6-   id       of each event
-- Reply:   1    time     server time, ms
--          2    letters  one for each id, see _audit.lua
-- Bound:   linear in the arguments
-- Redis:   6.0
--#needs _time _full _outbox _lanes _errors _body _park _lease _owned _audit

local FIRST = 6
local cutoff = tonumber(ARGV[5])
local events = redis.call('HLEN', ENTRIES) - redis.call('ZCARD', PARKED) - redis.call('ZCARD', SENT)
local bytes = bytes_in(redis.call('HGET', COUNTS, 'bytes'))

local function replay(id)
  local kept = redis.call('HGET', ENTRIES, id)
  if not kept then return 'u' end
  local at = redis.call('ZSCORE', SENT, id)
  if string.byte(kept, 1) ~= @SENT_MARK or not at then return 'w' end
  if tonumber(at) > cutoff then return 'n' end
  local body = string.sub(kept, 42)
  if body == '' then return 'b' end
  if events >= @CAPACITY or bytes + size_of(body) > @OUTBOX_BYTES then return 'f' end
  redis.call('ZREM', SENT, id)
  redis.call('HSET', ENTRIES, id, body)
  redis.call('ZADD', PENDING, NOW, id)
  events, bytes = events + 1, bytes + size_of(body)
  count('left', -1)
  count('bytes', size_of(body))
  count('replayed', 1)
  return 'd'
end

for arg = FIRST, #ARGV do answer(ARGV[arg], replay(ARGV[arg])) end
keep_counts()
return finish('replay')
