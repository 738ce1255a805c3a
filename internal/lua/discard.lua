-- Purpose: deletes parked events. A lane continues behind such an event.
-- KEYS:    1    void
--          2-14 outbox   the keys of the outbox, see outboxKeys in layout.go
--          15   audit
-- ARGV:    1-4  audit    see _audit.lua
--          5-   id       of each event
-- Reply:   1    time     server time, ms
--          2    letters  one for each id, see _audit.lua
-- Bound:   linear in the arguments
-- Redis:   6.0
--#needs _time _full _outbox _lanes _errors _body _park _lease _owned _audit

local function discard(id)
  local body = redis.call('HGET', ENTRIES, id)
  if not body then return 'u' end
  if string.byte(body, 1) == @SENT_MARK or not unpark(id, body) then return 'w' end
  for _, key in ipairs({ENTRIES, ATTEMPTS, ERRORS, ROUTES}) do redis.call('HDEL', key, id) end
  drop_body(body)
  leave(id)
  count('discarded', 1)
  return 'd'
end

for arg = 5, #ARGV do answer(ARGV[arg], discard(ARGV[arg])) end
keep_counts()
return finish('discard')
