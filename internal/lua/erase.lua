-- Purpose: erases the bodies of events. What was not sent is parked then, for nothing can publish it, and leaves its lane.
--          The texts of its failures go too: they may quote the body.
-- KEYS:    1 void; then those of _outbox.lua, and audit
-- ARGV:    1 to 4 see _audit.lua; then the ids
-- Reply:   server time (ms), and a letter for each id, see _audit.lua
-- Bound:   linear in the arguments
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full _outbox _lanes _errors _park _lease _owned _audit

local function is_leased(id)
  if redis.call('HEXISTS', LEASES, id) == 0 then return false end
  return (tonumber(redis.call('ZSCORE', PENDING, id) or 0)) > now
end

local function erase(id)
  local body = redis.call('HGET', ENTRIES, id)
  if not body then return 'u' end
  if string.byte(body) == @ERASED_MARK then return 'e' end
  if string.byte(body) == @SENT_MARK then
    if #body == 41 then return 'e' end
    redis.call('HSET', ENTRIES, id, string.sub(body, 1, 41))
    return 'd'
  end
  if is_leased(id) then return 'l' end
  if not redis.call('ZSCORE', PARKED, id) then park(id, body, false) end
  tally(body, class_of(id), -1)
  redis.call('HDEL', ERRORS, id)
  note(id, redis.call('HGET', ATTEMPTS, id) or '0', 'erased', WHY)
  redis.call('HSET', ENTRIES, id, '!' .. redis.sha1hex(body))
  tally('', 'erased', 1)
  count('parked_bytes', 41 - #body) -- the length of ! and a digest
  leave(id)
  count('erased', 1)
  return 'd'
end

write_though_full()
for p = 5, #ARGV do answer(ARGV[p], erase(ARGV[p])) end
keep_counts()
return finish('erase')
