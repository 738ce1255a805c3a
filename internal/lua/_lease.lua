-- Purpose: leases events, in batches.
--
--   leases    event -> lease, of events that are leased, or were leased when their relay died
--   attempts  event -> attempts; an event under its first lease has none here, and counts as one attempt
-- A lease is a number with so many digits that Redis keeps the hash as a table. Redis would keep short values as a list, and
-- read it from its beginning for each event.
--#needs _outbox
--#defines attempts_of take grant

local lease -- of the events that this script leases, from the shard's sequence
local tries, holders, scores, last = {'HSET', ATTEMPTS}, {'HSET', LEASES}, {'ZADD', PENDING}, 2

-- Returns the attempts of an event, from its value in the hash and from whether it is or was leased.
local function attempts_of(attempts, leased) return tonumber(attempts) or (leased and 1 or 0) end

-- Leases an event until lease_end (ms). attempts is its value in the hash before this attempt.
local function take(id, attempt, attempts, lease_end)
  lease = lease or string.format('%065.0f', redis.call('INCR', SEQ))
  if attempts or attempt > 1 then
    tries[#tries + 1] = id
    tries[#tries + 1] = attempt
  end
  local place, next_place = last + 1, last + 2
  holders[place], holders[next_place] = id, lease
  scores[place], scores[next_place] = lease_end, id
  last = next_place
end

-- Writes the leases, once a script. Returns the lease; empty if no event was leased.
local function grant()
  if not lease then return '' end
  if #tries > 2 then redis.call(unpack(tries)) end
  redis.call(unpack(holders))
  redis.call(unpack(scores))
  return lease
end
