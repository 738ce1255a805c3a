-- Purpose: settles a batch of events after a publish. Sent always wins. Failed, parked and back apply only
--          under the event's current lease: a late waker must not move what another publishes now. The next event of a
--          lane is due at once, and leased to the caller where he asks for it.
-- KEYS:    1 void; then those of _outbox.lua
-- ARGV:    1 attempts allowed, 2 backoff base (ms), 3 backoff cap (ms), 4 retention of sent ids (ms, negative: forgotten
--          at once), 5 1: sent bodies are kept, 6 1: a lane continues without its parked events, 7 lease of promoted
--          events (ms, 0: they are everybody's), 8 number of sent ones, 9 the bytes of their bodies (empty: the caller has
--          not got them); then of each sent one id and =, followed by the SHA-1 of its body in hex (empty: see 9); then of
--          each other one id, what (failed, parked, back, hold: back until unhold.lua), lease (empty: the committer's own, before any claim), a number
--          (failed: in [0, 1), for the jitter; back, hold: ms from now), class (of failed: may be empty) and error
-- Reply:   server time (ms), lease of promoted events, how many events have become heads of lanes, a letter for each event, s
--          sent, f failed, p parked, b back, or - where nothing was done; then id, attempt, destination and body of each that
--          was leased to the caller.
-- Bound:   linear in the arguments, and 100 sent ids whose retention has passed
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full _outbox _lanes _errors _park _lease

local budget, base, cap, retention = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local keep, continues, hold = ARGV[5] == '1', ARGV[6] == '1', tonumber(ARGV[7])
local SENT_ONES, BYTES, FIRST, WIDTH = tonumber(ARGV[8]), tonumber(ARGV[9]), 10, 6
local OTHERS = FIRST + 2 * SENT_ONES

-- Events that were published as soon as they were committed have nothing but their body and their place in pending.
local plain = redis.call('EXISTS', ATTEMPTS, LEASES, ERRORS, PARKED, ROUTES, HEADERS) == 0

local gone, gone_ids, digests, scores = {}, {}, {'HSET', ENTRIES}, {'ZADD', SENT} -- those sent now
local at_once = false -- they are out of pending

local function sent(id, body)
  local state = body and string.byte(body)
  if not body or state == @SENT_MARK or gone[id] then return '-' end
  gone[id], gone_ids[#gone_ids + 1] = true, id
  local n = #digests
  digests[n + 1] = id -- the id is kept, so that the same event is known
  digests[n + 2] = state == @ERASED_MARK and '=' .. string.sub(body, 2) or '=' .. redis.sha1hex(body) .. (keep and body or '')
  scores[n + 1], scores[n + 2] = NOW, id
  count('sent', 1)
  if plain or not unpark(id, body) then
    count('events', -1)
    count('bytes', -#body)
  end
  if not plain then leave(id) end
  return 's'
end

-- Keeps what was sent.
local function keep_sent()
  if #gone_ids == 0 then return end
  if not at_once then redis.call('ZREM', PENDING, unpack(gone_ids)) end
  if retention < 0 then
    redis.call('HDEL', ENTRIES, unpack(gone_ids))
  else
    redis.call(unpack(digests))
    redis.call(unpack(scores))
  end
  if plain then return end
  for _, key in ipairs({ATTEMPTS, LEASES, ERRORS, ROUTES}) do
    if redis.call('EXISTS', key) == 1 then redis.call('HDEL', key, unpack(gone_ids)) end
  end
end

-- Reports whether none of these is in a lane.
local function unordered(ids)
  if plain or redis.call('EXISTS', HEADERS) == 0 then return true end
  for _, header in ipairs(redis.call('HMGET', HEADERS, unpack(ids))) do
    if header then return false end
  end
  return true
end

-- What was sent, without a look at the bodies, where the caller knows them, nobody stands behind, and all of it is pending
-- still: so none was sent before, parked, or erased. Returns false where that is not so; then the look finds out.
local function sent_at_once(ids)
  if not BYTES or keep or not unordered(ids) or redis.call('ZREM', PENDING, unpack(ids)) < #ids then return false end
  for i, id in ipairs(ids) do
    scores[2 * i + 1], scores[2 * i + 2], gone[id] = NOW, id, true
  end
  digests, gone_ids = {'HSET', ENTRIES, unpack(ARGV, FIRST, OTHERS - 1)}, ids
  count('sent', #ids)
  count('events', -#ids)
  count('bytes', -BYTES)
  return true
end

local function unsent(id, body, what, lease, number, class, text)
  if not body or gone[id] or not redis.call('ZSCORE', PENDING, id) then return '-' end
  if (redis.call('HGET', LEASES, id) or '') ~= lease then return '-' end
  plain = false
  local claimed = lease ~= '' -- the claim has counted the attempt; the committer's own counts when it fails
  if what == 'back' or what == 'hold' then
    local half = what == 'hold' and '.5' or '' -- see unhold.lua
    redis.call('ZADD', PENDING, string.format('%.0f', now + number) .. half, id)
    if claimed and redis.call('HINCRBY', ATTEMPTS, id, -1) <= 0 then redis.call('HDEL', ATTEMPTS, id) end
    redis.call('HDEL', LEASES, id)
    return 'b'
  end
  local attempts = attempts_of(redis.call('HGET', ATTEMPTS, id), claimed) + (claimed and 0 or 1)
  redis.call('HSET', ATTEMPTS, id, attempts)
  count('failed', 1)
  if what == 'failed' and attempts < budget then
    local delay = math.floor(math.min(cap, base * 2 ^ math.min(attempts - 1, 30)) * number)
    redis.call('ZADD', PENDING, string.format('%.0f', now + delay), id)
    redis.call('HDEL', LEASES, id)
    note(id, attempts, class == '' and 'failed' or class, text)
    return 'f'
  end
  note(id, attempts, class == '' and what == 'failed' and 'exhausted' or class, text)
  park(id, body, continues)
  return 'p'
end

local ask, letters = {}, {}
for p = FIRST, OTHERS - 1, 2 do ask[#ask + 1] = ARGV[p] end
at_once = SENT_ONES > 0 and sent_at_once(ask)
if not at_once then write_though_full() end -- else ZREM was the first write
if at_once then
  letters[1] = string.rep('s', SENT_ONES)
else
  for i, body in ipairs(SENT_ONES > 0 and redis.call('HMGET', ENTRIES, unpack(ask)) or {}) do letters[i] = sent(ask[i], body) end
end
for p = OTHERS, #ARGV, WIDTH do
  local id = ARGV[p]
  local body = redis.call('HGET', ENTRIES, id)
  letters[#letters + 1] = unsent(id, body, ARGV[p + 1], ARGV[p + 2], tonumber(ARGV[p + 3]), ARGV[p + 4], ARGV[p + 5])
end
local reply = {NOW, '', 0, table.concat(letters)}
keep_sent()

-- Leases an event that has become the head of its lane to the caller.
local function adopt(id)
  local body, attempts = redis.call('HGET', ENTRIES, id), redis.call('HGET', ATTEMPTS, id)
  local attempt = attempts_of(attempts, redis.call('HGET', LEASES, id)) + 1
  if gone[id] or attempt > budget or not redis.call('ZSCORE', PENDING, id) then return end -- settled here too; or a claim's to judge
  take(id, attempt, attempts, string.format('%.0f', now + hold))
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = id, attempt, redis.call('HGET', ROUTES, id) or '', body
end
if hold > 0 then
  for _, id in ipairs(promoted) do adopt(id) end
end
reply[2], reply[3] = grant(), #promoted
keep_counts()

local old = redis.call('ZRANGEBYSCORE', SENT, '-inf', string.format('%.0f', now - math.max(0, retention)), 'LIMIT', 0, 100)
if #old > 0 then
  redis.call('HDEL', ENTRIES, unpack(old))
  redis.call('ZREM', SENT, unpack(old))
end
return reply
