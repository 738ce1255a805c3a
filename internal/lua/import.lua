-- Purpose: imports events as parked ones, each once. An event with an ordering key goes to the end of its lane.
-- KEYS:    1    void
--          2-14 outbox       the keys of the outbox, see outboxKeys in layout.go
--          15   audit
-- ARGV:    1-4  audit        see _audit.lua
--          then for each event
--          +1   id
--          +2   key          escaped ordering key; empty: none
--          +3   parked       when it was parked, ms
--          +4   attempts
--          +5   history      see _errors.lua
--          +6   destination  empty: as the body says
--          +7   body         as entries holds it
-- Reply:   1    time         server time, ms
--          2    letters      one for each event, see _audit.lua
-- Bound:   linear in the arguments
-- Redis:   6.0
--#needs _time _full _outbox _lanes _errors _body _park _lease _owned _audit

local parked, bytes = redis.call('ZCARD', PARKED), tonumber(redis.call('HGET', COUNTS, 'parked_bytes') or 0) or 0
if not meta then redis.call('HSET', INBOX, 'id', meta_of(now, false, 0)) end

local function import(id, key, at, attempts, history, route, body)
  local old = redis.call('HGET', ENTRIES, id)
  if old then return digest_of(old) == digest_of(body) and 'k' or 'o' end
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
  count('parked_bytes', #body)
  count('imported', 1)
  return 'd'
end

for arg = 5, #ARGV, 7 do answer(ARGV[arg], import(unpack(ARGV, arg, arg + 6))) end
keep_counts()
return finish('import')
