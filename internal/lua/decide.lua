-- Purpose: decides timers that are due. Each one that was not revoked puts an event into the outbox, once. The script reads the
--          revocations itself, so that no time passes between the check and the decision.
-- KEYS:    1  void
--          2  inbox:a
--          3  due
--          4  entries
--          5  pending
--          6  decided
--          7  counts
--          8- marker      every marker of ARGV
-- ARGV:    1  cut-off     ms; empty: none
--          then for each timer
--          +1 subject
--          +2 due         ms, as the caller has read it
--          +3 id          of its event
--          +4 body        of its event
--          +5 marker      a key that revokes the timer if it exists; empty: none
-- Reply:   1  time        server time, ms
--          then for each timer
--          'enqueued'
--          'revoked'
--          'already'      the event is or was in the outbox
--          'not due'      or due at another time by now, or not open
--          'full'         the outbox is full; nothing was done
--          'other'        the outbox has another event under the id; nothing was done
--          or time, 'identity', the identity found
-- Bound:   linear in the arguments
-- Redis:   6.0
--#needs _time _owned _events _timers
--#lazy large(size_of digest_of is_there adopt_body) _body _large

local latest = math.min(now, tonumber(ARGV[1]) or now)

local function is_revoked(subject, marker)
  return is_decided(revoked_member(subject)) or (marker ~= '' and redis.call('EXISTS', marker) == 1)
end

local function decide(subject, due, id, body, marker)
  local open = due_of(subject)
  local current = open == tonumber(due)
  if is_revoked(subject, marker) then
    if open then redis.call('ZREM', DUE, subject) end
    return 'revoked'
  end
  if is_decided(fired_member(subject, due)) or (not current and redis.call('HEXISTS', @ENTRIES, id) == 1) then
    if current then redis.call('ZREM', DUE, subject) end
    return 'already'
  end
  if not current or open > latest then return 'not due' end
  local came = outbox.came
  local ok, full = enqueue(id, '', body, NOW)
  if not ok then return full and 'full' or 'other' end
  decided(subject, fired_member(subject, due))
  return outbox.came > came and 'enqueued' or 'already'
end

local reply = {NOW}
for arg = 2, #ARGV, 5 do
  reply[#reply + 1] = decide(ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3], ARGV[arg + 4])
end
keep_events()
forget(#reply)
return reply
