-- Purpose: revokes the open timer of a subject. The timer will never fire, and the event of the revocation enters the outbox in
--          the same step.
-- KEYS:    1  void
--          2  inbox:a
--          3  due
--          4  entries
--          5  pending
--          6  decided
--          7  counts
-- ARGV:    1  subject
--          2  id          of the event, if there is one
--          3  body        of the event
-- Reply:   time (server time, ms), then
--          'revoked'      now or before
--          'none'         no timer is open: it fired, was cancelled, or never was
--          'full'         the outbox is full; nothing was done
--          'other'        the outbox has another event under the id; nothing was done
--          'identity'     the identity found
-- Bound:   constant
-- Redis:   6.0
--#needs _time _owned _events _timers
--#lazy large(size_of digest_of is_there adopt_body) _body _large

local subject, id, body = ARGV[1], ARGV[2], ARGV[3]
if is_decided(revoked_member(subject)) then return {NOW, 'revoked'} end
if not due_of(subject) then return {NOW, 'none'} end
if id then
  local ok, full = enqueue(id, '', body, NOW)
  if not ok then return {NOW, full and 'full' or 'other'} end
  keep_events()
end
decided(subject, revoked_member(subject))
forget(1)
return {NOW, 'revoked'}
