-- Purpose: removes parked events for good. A lane goes on behind one.
-- KEYS:    1 void; then those of _outbox.lua, and audit
-- ARGV:    1 to 4 see _audit.lua; then the ids
-- Reply:   server time (ms), and a letter for each id, see _audit.lua
-- Bound:   linear in the arguments
-- Redis:   6.0
--#needs _time _full _outbox _lanes _errors _park _lease _owned _audit

local function discard(id)
  local body = redis.call('HGET', ENTRIES, id)
  if not body then return 'u' end
  if string.byte(body) == @SENT_MARK or not unpark(id, body) then return 'w' end
  for _, key in ipairs({ENTRIES, ATTEMPTS, LEASES, ERRORS, ROUTES}) do redis.call('HDEL', key, id) end
  leave(id)
  count('discarded', 1)
  return 'd'
end

for p = 5, #ARGV do answer(ARGV[p], discard(ARGV[p])) end
keep_counts()
return finish('discard')
