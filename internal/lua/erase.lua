-- Purpose: erases the bodies of events. An event that was not sent is parked, because nothing can publish it, and leaves its lane.
--          The script deletes the texts of its failures, too, because they may quote the body.
-- KEYS:    1    void
--          2-14 outbox   the keys of the outbox, see outboxKeys in layout.go
--          15   audit
-- ARGV:    1-4  audit    see _audit.lua
--          5-   id       of each event
-- Reply:   1    time     server time, ms
--          2    letters  one for each id, see _audit.lua
-- Bound:   linear in the arguments
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full _outbox _lanes _errors _body _park _lease _owned _audit

local function is_leased(id)
  local score = tonumber(redis.call('ZSCORE', PENDING, id) or 0)
  return score < 0 and score + @LEASED > now
end

local function erase(id)
  local body = redis.call('HGET', ENTRIES, id)
  if not body then return 'u' end
  if string.byte(body, 1) == @ERASED_MARK then return 'e' end
  if string.byte(body, 1) == @SENT_MARK then
    if #body == 41 then return 'e' end
    redis.call('HSET', ENTRIES, id, string.sub(body, 1, 41))
    drop_body(string.sub(body, 42))
    return 'd'
  end
  if is_leased(id) then return 'l' end
  if not redis.call('ZSCORE', PARKED, id) then park(id, body, false) end
  tally(body, class_of(id), -1)
  redis.call('HDEL', ERRORS, id)
  note(id, redis.call('HGET', ATTEMPTS, id) or '0', 'erased', WHY)
  redis.call('HSET', ENTRIES, id, '!' .. digest_of(body))
  drop_body(body)
  tally('', 'erased', 1)
  count('parked_bytes', 41 - size_of(body)) -- 41 is the length of ! and a digest
  leave(id)
  count('erased', 1)
  return 'd'
end

write_though_full()
for arg = 5, #ARGV do answer(ARGV[arg], erase(ARGV[arg])) end
keep_counts()
return finish('erase')
