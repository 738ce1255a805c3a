-- Purpose: leases events, in batches.
--
-- The lease of an event is its score in pending: the time (ms) at which the lease ends, minus 10^13, plus a fraction from the
-- shard's sequence. So a leased event has a negative score, all other events have a score of 0 or more, and leased events are in
-- the order in which their leases end. Two leases are equal only if they end in the same millisecond and the number of leases
-- between them is a multiple of 1024.
--   attempts  event -> attempts; an event under its first lease has none here, and counts as one attempt
--#needs _outbox
--#defines attempts_of holds lease_until place take grant

local lease -- of the events that this script leases
local tries, scores, placed = {'HSET', ATTEMPTS}, {'ZADD', PENDING}, 2 -- placed: the length of scores

-- Returns the attempts of an event, from its value in the hash and from whether it is or was leased.
local function attempts_of(attempts, leased) return tonumber(attempts) or (leased and 1 or 0) end

-- Reports whether an event with a score is held under a lease, which is empty for an event that no relay has claimed.
local function holds(score, text)
  score = tonumber(score)
  if not score then return false end
  if text == '' then return score >= 0 end
  return score < 0 and score == tonumber(text)
end

-- Returns the lease of this script, which ends at a time (ms).
local function lease_until(lease_end)
  lease = lease or string.format('%.17g', lease_end - @LEASED + redis.call('INCR', SEQ) % 1024 / 1024)
  return lease
end

-- Notes the score of an event, which grant writes.
local function place(id, score)
  scores[placed + 1], scores[placed + 2] = score, id
  placed = placed + 2
end

-- Leases an event. attempts is its value in the hash before this attempt.
local function take(id, attempt, attempts, lease_end)
  if attempts or attempt > 1 then
    tries[#tries + 1] = id
    tries[#tries + 1] = attempt
  end
  place(id, lease or lease_until(lease_end))
end

-- Writes the leases, once a script. Returns the lease; empty if no event was leased.
local function grant()
  if not lease then return '' end
  if #tries > 2 then redis.call(unpack(tries)) end
  redis.call(unpack(scores))
  return lease
end
