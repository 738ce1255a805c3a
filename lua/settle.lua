-- Purpose: settles a batch of events after a publish. Sent always wins. Failed, parked and back apply only
--          under the event's current lease: a late waker must not move what another publishes now.
-- KEYS:    1 void, 2 entries, 3 pending, 4 attempts, 5 leases, 6 errors, 7 parked, 8 sent
-- ARGV:    1 attempts allowed, 2 backoff base (ms), 3 backoff cap (ms), 4 retention of sent ids (ms); then of
--          each event: id, what (sent, failed, parked, back), lease (empty: the committer's own, before any
--          claim), a number (failed: in [0, 1), for the jitter; back: ms from now), error
-- Reply:   server time (ms), then for each event: sent, failed, parked, back, or stale where nothing was done.
-- Bound:   linear in the arguments, and 100 sent ids whose retention has passed
-- Redis:   6.0

local ENTRIES, PENDING, ATTEMPTS, LEASES = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local ERRORS, PARKED, SENT = KEYS[6], KEYS[7], KEYS[8]
local NOW = string.format('%.0f', now)
local budget, base, cap = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local function sent(id)
  local body = redis.call('HGET', ENTRIES, id)
  if not body or string.sub(body, 1, 1) == '=' then return 'stale' end
  redis.call('HSET', ENTRIES, id, '=' .. redis.sha1hex(body)) -- keeps the id, so that the same event is known
  redis.call('ZREM', PENDING, id)
  redis.call('ZREM', PARKED, id)
  redis.call('HDEL', ATTEMPTS, id)
  redis.call('HDEL', LEASES, id)
  redis.call('HDEL', ERRORS, id)
  redis.call('ZADD', SENT, NOW, id)
  return 'sent'
end

local function park(id, why)
  redis.call('ZREM', PENDING, id)
  redis.call('ZADD', PARKED, NOW, id)
  redis.call('HDEL', LEASES, id)
  redis.call('HSET', ERRORS, id, why)
  return 'parked'
end

local function unsent(id, what, lease, number, why)
  if not redis.call('ZSCORE', PENDING, id) or (redis.call('HGET', LEASES, id) or '') ~= lease then return 'stale' end
  if what == 'parked' then return park(id, why) end
  local claimed = lease ~= '' -- the claim has counted the attempt; the committer's own counts when it fails
  if what == 'back' then
    redis.call('ZADD', PENDING, string.format('%.0f', now + number), id)
    if claimed then redis.call('HINCRBY', ATTEMPTS, id, -1) end
    redis.call('HDEL', LEASES, id)
    return 'back'
  end
  local attempts = redis.call('HINCRBY', ATTEMPTS, id, claimed and 0 or 1)
  if attempts >= budget then return park(id, why) end
  local delay = math.floor(math.min(cap, base * 2 ^ math.min(attempts - 1, 30)) * number)
  redis.call('ZADD', PENDING, string.format('%.0f', now + delay), id)
  redis.call('HDEL', LEASES, id)
  redis.call('HSET', ERRORS, id, why)
  return 'failed'
end

local reply = {NOW}
for p = 5, #ARGV, 5 do
  local id, what = ARGV[p], ARGV[p + 1]
  if what == 'sent' then
    reply[#reply + 1] = sent(id)
  else
    reply[#reply + 1] = unsent(id, what, ARGV[p + 2], tonumber(ARGV[p + 3]), ARGV[p + 4])
  end
end

local old = redis.call('ZRANGEBYSCORE', SENT, '-inf', string.format('%.0f', now - tonumber(ARGV[4])), 'LIMIT', 0, 100)
if #old > 0 then
  redis.call('HDEL', ENTRIES, unpack(old))
  redis.call('ZREM', SENT, unpack(old))
end
return reply
