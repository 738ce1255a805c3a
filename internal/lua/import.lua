-- Purpose: takes events in as parked ones, each once. One with an ordering key goes to the end of its lane.
-- KEYS:    1 void; then those of _outbox.lua, and audit
-- ARGV:    1 to 4 see _audit.lua; then of each event: id, escaped ordering key (empty: none), when it was parked (ms),
--          attempts, history, destination (empty: as its body says), body (! and its digest: it was erased)
-- Reply:   server time (ms), and a letter for each event, see _audit.lua
-- Bound:   linear in the arguments
-- Redis:   6.0
--#needs _time _full _outbox _lanes _errors _park _lease _owned _audit

local counted = redis.call('HMGET', COUNTS, 'parked', 'parked_bytes')
local parked, bytes = tonumber(counted[1]) or 0, tonumber(counted[2]) or 0
if not identity then redis.call('HSET', INBOX, 'id', @IDENTITY, 'start', NOW) end

local function digest(body)
  local first = string.byte(body)
  return (first == @ERASED_MARK or first == @SENT_MARK) and string.sub(body, 2, 41) or redis.sha1hex(body)
end

local function import(id, key, at, attempts, history, route, body)
  local old = redis.call('HGET', ENTRIES, id)
  if old then return digest(old) == digest(body) and 'k' or 'o' end
  if parked >= @PARKED_CAPACITY or bytes >= @PARKED_BYTES then return 'f' end
  parked, bytes = parked + 1, bytes + #body
  redis.call('HSET', ENTRIES, id, body)
  redis.call('ZADD', PARKED, string.format('%.0f', math.min(now, tonumber(at))), id)
  if attempts ~= '0' then redis.call('HSET', ATTEMPTS, id, attempts) end
  if history ~= '' then redis.call('HSET', ERRORS, id, history) end
  if route ~= '' then redis.call('HSET', ROUTES, id, route) end
  if key ~= '' then
    local sequence = string.format('%016.0f', redis.call('INCR', SEQ))
    redis.call('HSET', HEADERS, id, sequence .. key)
    redis.call('ZADD', LANES, 0, key .. '\0' .. sequence .. '\0' .. id)
  end
  tally(body, class_of(id), 1)
  count('parked', 1)
  count('parked_bytes', #body)
  count('imported', 1)
  return 'd'
end

for p = 5, #ARGV, 7 do answer(ARGV[p], import(unpack(ARGV, p, p + 6))) end
keep_counts()
return finish('import')
