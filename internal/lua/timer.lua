-- Purpose: records, moves or cancels the timer of a subject.
-- KEYS:    1  void
--          2  inbox:a
--          3  due
--          4  entries
--          5  pending
--          6  decided
--          7  counts
-- ARGV:    1  act         record, extend or cancel
--          2  subject
--          3  due         ms; for cancel: when the timer must be due, 0: any time
-- Reply:   time (server time, ms), then
--          'recorded'     now, or before for the same time
--          'open'         a timer is open for another time
--          'revoked'
--          'extended'
--          'cancelled'
--          'none'         no timer is open
--          'identity'     the identity found
-- Bound:   constant
-- Redis:   6.0
--#needs _time _owned _timers

local what, subject, due = ARGV[1], ARGV[2], ARGV[3]
local open = due_of(subject)
if what == 'record' then
  if is_decided(revoked_member(subject)) then return {NOW, 'revoked'} end
  if open then return {NOW, open == tonumber(due) and 'recorded' or 'open'} end
  if is_decided(fired_member(subject, due)) then return {NOW, 'recorded'} end
  if not meta then redis.call('HSET', @INBOX_A, 'id', meta_of(now, false, 0)) end
  redis.call('ZADD', DUE, due, subject)
  return {NOW, 'recorded'}
end
if not open then return {NOW, 'none'} end
if what == 'extend' then
  redis.call('ZADD', DUE, due, subject)
  return {NOW, 'extended'}
end
if due ~= '0' and open ~= tonumber(due) then return {NOW, 'none'} end
redis.call('ZREM', DUE, subject)
return {NOW, 'cancelled'}
