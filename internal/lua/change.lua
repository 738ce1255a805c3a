-- Purpose: changes events that are not published yet, for an operator. An event that a relay has leased stays as it is.
-- KEYS:    1    void
--          2-14 outbox   the keys of the outbox, see outboxKeys in layout.go
--          15   audit
-- ARGV:    1-4  audit    see _audit.lua
--          5    act      retry (a pending event is due at once), reschedule (it is due at the time), cancel or move (a scheduled event
--                        that no relay has claimed), park (a pending or waiting event), or discard (a pending, waiting or parked event)
--          6    time     ms; empty unless it reschedules or moves
--          7-   id       of each event
-- Reply:   1    time     server time, ms
--          2    letters  one for each id, see _audit.lua
-- Bound:   linear in the arguments
-- Redis:   6.0
--#needs _time _full _outbox _lanes _errors _body _park _lease _owned _audit

local ACT, AT, FIRST = ARGV[5], ARGV[6], 7

-- Makes a pending event due at a time. The attempt of a lease that has ended counts.
local function due(id, score, at)
  if not score then return 'w' end
  count_first(id, score)
  redis.call('ZADD', PENDING, at, id)
  return 'd'
end

-- Deletes an event. Its lane continues.
local function delete(id, body, parked)
  if parked then
    unpark(id, body)
  else
    redis.call('ZREM', PENDING, id)
    count('left', 1)
    count('bytes', -size_of(body))
  end
  for _, key in ipairs({ENTRIES, ATTEMPTS, ERRORS, ROUTES}) do redis.call('HDEL', key, id) end
  drop_body(body)
  leave(id)
  count('discarded', 1)
  return 'd'
end

local acts = {}

function acts.retry(id, _, score) return due(id, score, NOW) end

function acts.reschedule(id, _, score) return due(id, score, AT) end

local function is_scheduled(id, score) return score and redis.call('HGET', ATTEMPTS, id) == '0' end

function acts.cancel(id, body, score)
  if not is_scheduled(id, score) then return 'w' end
  return delete(id, body, false)
end

function acts.move(id, _, score)
  if not is_scheduled(id, score) then return 'w' end
  return due(id, score, AT)
end

function acts.park(id, body, score, parked)
  if parked then return 'w' end
  count_first(id, score)
  note(id, redis.call('HGET', ATTEMPTS, id) or '0', 'operator', WHY)
  park(id, body, false)
  return 'd'
end

function acts.discard(id, body, _, parked) return delete(id, body, parked) end

local function change(id)
  local body = redis.call('HGET', ENTRIES, id)
  if not body then return 'u' end
  if string.byte(body, 1) == @SENT_MARK then return 'w' end
  local score = tonumber(redis.call('ZSCORE', PENDING, id) or nil)
  if score and score < 0 and score + @LEASED > now then return 'l' end
  return acts[ACT](id, body, score, redis.call('ZSCORE', PARKED, id))
end

for arg = FIRST, #ARGV do answer(ARGV[arg], change(ARGV[arg])) end
keep_counts()
return finish(ACT)
