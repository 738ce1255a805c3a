-- Purpose: settles a batch of events after a publish. 'sent' always applies. 'failed', 'parked', 'back' and 'hold' apply only
--          under the current lease of the event: a relay that wakes up late must not move an event that another one publishes
--          now. The next event of a lane is due at once, and leased to the caller on request.
-- KEYS:    1     void
--          2-14  outbox       the keys of the outbox, see outboxKeys in layout.go
-- ARGV:    1     attempts     attempts allowed for each event
--          2     base         of the backoff, ms
--          3     cap          of the backoff, ms
--          4     retention    of sent ids, ms; negative: forget them at once
--          5     keep         1: keep the bodies of sent events, and all their ids
--          6     continues    1: a lane continues without its parked events
--          7     hold         lease of promoted events, ms; 0: any relay may claim them
--          8     given        number of sent events whose ids are remembered
--          9     derived      number of sent events whose ids are forgotten
--          10    bytes        sum of their values in entries; empty: the caller does not have the bodies, and gives all as derived
--          then for each given event
--          +1    id
--          +2    digest       = and the SHA-1 of the body in hex
--          then for each derived event
--          +1    id
--          then for each other event
--          +1    id
--          +2    what         failed, parked, back, or hold (back until unhold.lua releases it)
--          +3    lease        empty: the committer's own, before any claim
--          +4    number       failed: from 0 up to, but not including, 1, for the jitter; back, hold: delay, ms
--          +5    class        of the failure; may be empty
--          +6    error
-- Reply:   1     time         server time, ms
--          2     lease        of the promoted events
--          3     promoted     number of events that became heads of lanes
--          4     letters      one for each event: s sent, f failed, p parked, b back, - nothing was done
--          then for each event that was leased to the caller
--          +1    id
--          +2    attempt      counted from 1
--          +3    destination  empty: as the body says
--          +4    body
-- Bound:   linear in the arguments, and 100 sent ids whose retention has passed
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full _outbox _lanes _errors _body _park _lease

local budget, backoff, longest_backoff, retention = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local keep, continues, hold = ARGV[5] == '1', ARGV[6] == '1', tonumber(ARGV[7])
local GIVEN, DERIVED, BYTES, FIRST, WIDTH = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), 11, 6
local SENT_ONES, DERIVED_ONES = GIVEN + DERIVED, FIRST + 2 * GIVEN
local OTHERS = DERIVED_ONES + DERIVED

-- Events that were published as soon as they were committed have only a body and a place in pending.
local plain = redis.call('EXISTS', ATTEMPTS, ERRORS, PARKED, ROUTES, HEADERS, own('bodies')) == 0

local gone, gone_ids, forgotten = {}, {}, {} -- the events sent now, and those of them whose ids are forgotten
local digests, scores = {'HSET', ENTRIES}, {'ZADD', SENT} -- of those whose ids are remembered
local at_once = false -- whether they have left pending

-- digest is = and the digest of the body, or nil if the caller does not have it.
local function sent(id, body, digest)
  local state = body and string.byte(body, 1)
  if not body or state == @SENT_MARK or gone[id] then return '-' end
  gone[id], gone_ids[#gone_ids + 1] = true, id
  if retention < 0 or state ~= @GIVEN_MARK and state ~= @ERASED_MARK and not keep then
    forgotten[#forgotten + 1] = id
    drop_body(body)
  else
    local n = #digests
    digests[n + 1] = id -- the id stays, so that the same event is a duplicate
    digests[n + 2] = (staged(body) and digest or '=' .. digest_of(body)) .. (keep and state ~= @ERASED_MARK and body or '')
    scores[n + 1], scores[n + 2] = NOW, id
    if not keep then drop_body(body) end
  end
  count('sent', 1)
  if plain or not unpark(id, body) then
    count('left', 1)
    count('bytes', -size_of(body))
  end
  if not plain then leave(id) end
  return 's'
end

-- Writes the sent events.
local function keep_sent()
  if #gone_ids == 0 then return end
  if not at_once then redis.call('ZREM', PENDING, unpack(gone_ids)) end
  if forgotten[1] then redis.call('HDEL', ENTRIES, unpack(forgotten)) end
  if digests[3] then
    redis.call(unpack(digests))
    redis.call(unpack(scores))
  end
  if plain then return end
  for _, key in ipairs({ATTEMPTS, ERRORS, ROUTES}) do
    if redis.call('EXISTS', key) == 1 then redis.call('HDEL', key, unpack(gone_ids)) end
  end
end

-- Reports whether the shard has no large bodies, and none of these is in a lane.
local function simple(ids)
  if plain then return true end
  if redis.call('EXISTS', own('bodies')) == 1 then return false end
  if redis.call('EXISTS', HEADERS) == 0 then return true end
  for _, header in ipairs(redis.call('HMGET', HEADERS, unpack(ids))) do
    if header then return false end
  end
  return true
end

-- Settles sent events without reading their bodies. That is right if the caller has the bodies, none is large, no event is in a
-- lane, and all are still pending, so that none was sent before, parked or erased. Otherwise returns false, and sent() reads each body.
local function sent_at_once(ids)
  if not BYTES or keep or not simple(ids) or redis.call('ZREM', PENDING, unpack(ids)) < #ids then return false end
  for i = 1, GIVEN do scores[2 * i + 1], scores[2 * i + 2] = NOW, ids[i] end
  digests = {'HSET', ENTRIES, unpack(ARGV, FIRST, DERIVED_ONES - 1)}
  forgotten = GIVEN == 0 and ids or {unpack(ARGV, DERIVED_ONES, OTHERS - 1)}
  gone_ids = ids -- gone is not needed: these are in no lane, and have left pending
  count('sent', #ids)
  count('left', #ids)
  count('bytes', -BYTES)
  return true
end

local function unsent(id, body, what, lease, number, class, text)
  if not body or gone[id] or not holds(redis.call('ZSCORE', PENDING, id), lease) then return '-' end
  plain = false
  local claimed = lease ~= '' -- a claim has counted the attempt; an attempt of the committer counts when it fails
  if what == 'back' or what == 'hold' then
    local half = what == 'hold' and '.5' or '' -- see unhold.lua
    redis.call('ZADD', PENDING, string.format('%.0f', now + number) .. half, id)
    if claimed and redis.call('HINCRBY', ATTEMPTS, id, -1) <= 0 then redis.call('HDEL', ATTEMPTS, id) end
    return 'b'
  end
  local attempts = attempts_of(redis.call('HGET', ATTEMPTS, id), claimed) + (claimed and 0 or 1)
  redis.call('HSET', ATTEMPTS, id, attempts)
  count('failed', 1)
  if what == 'failed' and attempts < budget then
    local delay = math.floor(math.min(longest_backoff, backoff * 2 ^ math.min(attempts - 1, 30)) * number)
    redis.call('ZADD', PENDING, string.format('%.0f', now + delay), id)
    note(id, attempts, class == '' and 'failed' or class, text)
    return 'f'
  end
  note(id, attempts, class == '' and what == 'failed' and 'exhausted' or class, text)
  park(id, body, continues)
  return 'p'
end

local ask, letters = {}, {}
for i = 1, GIVEN do ask[i] = ARGV[FIRST + 2 * i - 2] end
for i = 1, DERIVED do ask[GIVEN + i] = ARGV[DERIVED_ONES + i - 1] end
at_once = SENT_ONES > 0 and sent_at_once(ask)
if not at_once then write_though_full() end -- else ZREM was the first write
if at_once then
  letters[1] = string.rep('s', SENT_ONES)
else
  for i, body in ipairs(SENT_ONES > 0 and redis.call('HMGET', ENTRIES, unpack(ask)) or {}) do
    letters[i] = sent(ask[i], body, i <= GIVEN and ARGV[FIRST + 2 * i - 1] or nil)
  end
end
for arg = OTHERS, #ARGV, WIDTH do
  local id = ARGV[arg]
  local body = redis.call('HGET', ENTRIES, id)
  letters[#letters + 1] = unsent(id, body, ARGV[arg + 1], ARGV[arg + 2], tonumber(ARGV[arg + 3]), ARGV[arg + 4], ARGV[arg + 5])
end
local reply = {NOW, '', 0, table.concat(letters)}
keep_sent()

-- Leases an event that has become the head of its lane to the caller.
local function adopt(id)
  local body, attempts = redis.call('HGET', ENTRIES, id), redis.call('HGET', ATTEMPTS, id)
  local attempt = attempts_of(attempts, false) + 1
  -- It may be settled here, too, or a claim must park it.
  if gone[id] or attempt > budget or not redis.call('ZSCORE', PENDING, id) then return end
  take(id, attempt, attempts, now + hold)
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
  if redis.call('EXISTS', own('bodies')) == 1 then
    for _, body in ipairs(redis.call('HMGET', ENTRIES, unpack(old))) do
      if body then drop_body(string.sub(body, 42)) end
    end
  end
  redis.call('HDEL', ENTRIES, unpack(old))
  redis.call('ZREM', SENT, unpack(old))
end
return reply
