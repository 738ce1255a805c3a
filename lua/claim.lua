-- Purpose: claims a batch of due events for a relay, oldest due first: counts the attempt, gives a lease, and
--          moves each event's next attempt past the lease. An event that used up its attempts (its relay died
--          every time) is parked instead; an index member without a body goes.
-- KEYS:    1 void, 2 inbox:a, 3 entries, 4 pending, 5 attempts, 6 leases, 7 errors, 8 parked, 9 seq
-- ARGV:    1 limit, 2 lease (ms), 3 attempts allowed
-- Reply:   server time (ms), when the next event is due (ms, empty: none waits), lease, number parked, number
--          of orphans, then id, attempt and body of each event; or server time, 'identity' and the one found.
-- Bound:   linear in the limit
-- Redis:   6.0

local INBOX, ENTRIES, PENDING, ATTEMPTS = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local LEASES, ERRORS, PARKED, SEQ = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local NOW = string.format('%.0f', now)
local budget, until_ = tonumber(ARGV[3]), string.format('%.0f', now + tonumber(ARGV[2]))

local function next_due()
  local first = redis.call('ZRANGE', PENDING, 0, 0, 'WITHSCORES')
  return first[2] and string.format('%.0f', tonumber(first[2])) or ''
end

local ids = redis.call('ZRANGEBYSCORE', PENDING, '-inf', NOW, 'LIMIT', 0, ARGV[1])
if #ids == 0 then return {NOW, next_due(), '', 0, 0} end
local identity = redis.call('HGET', INBOX, 'id')
if identity and identity ~= IDENTITY then return {NOW, 'identity', identity} end

local ask, tries = {'HMGET', ENTRIES}, {'HMGET', ATTEMPTS}
for i, id in ipairs(ids) do ask[i + 2], tries[i + 2] = id, id end
local bodies, attempts = redis.call(unpack(ask)), redis.call(unpack(tries))

local lease
local reply, parked, orphans = {NOW, '', '', 0, 0}, 0, 0
for i, id in ipairs(ids) do
  local body, attempt = bodies[i], (tonumber(attempts[i]) or 0) + 1
  if not body then
    redis.call('ZREM', PENDING, id)
    orphans = orphans + 1
  elseif attempt > budget then
    redis.call('ZREM', PENDING, id)
    redis.call('ZADD', PARKED, NOW, id)
    redis.call('HDEL', LEASES, id)
    redis.call('HSETNX', ERRORS, id, 'the lease ran out at the last attempt: its relay died or hung')
    parked = parked + 1
  else
    lease = lease or string.format('%.0f', redis.call('INCR', SEQ))
    redis.call('HSET', ATTEMPTS, id, attempt)
    redis.call('HSET', LEASES, id, lease)
    redis.call('ZADD', PENDING, until_, id)
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = id, attempt, body
  end
end
reply[2], reply[3], reply[4], reply[5] = next_due(), lease or '', parked, orphans
return reply
