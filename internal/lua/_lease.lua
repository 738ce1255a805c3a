-- Purpose: leases, in batches.
--
-- leases holds a lease for each event that is under one, or was when its relay died; attempts the attempts of each, but of
-- those that are under their first lease: that counts as one. A lease is a number with so many digits that Redis keeps the
-- hash as a table: as the list that it makes of short values it would be read from its beginning for each event.
--#needs _outbox
--#defines attempts_of take grant

local lease -- of what this script takes, by the shard's sequence
local tries, holders, scores, last = {'HSET', ATTEMPTS}, {'HSET', LEASES}, {'ZADD', PENDING}, 2

-- The attempts of an event, by what the hash says, and whether it is or was under a lease.
local function attempts_of(attempts, leased) return tonumber(attempts) or (leased and 1 or 0) end

-- Takes an event under the lease, until then (ms). The attempts are what the hash said so far.
local function take(id, attempt, attempts, until_)
  lease = lease or string.format('%065.0f', redis.call('INCR', SEQ))
  if attempts or attempt > 1 then
    tries[#tries + 1] = id
    tries[#tries + 1] = attempt
  end
  local at, to = last + 1, last + 2
  holders[at], holders[to] = id, lease
  scores[at], scores[to] = until_, id
  last = to
end

-- Keeps what was taken, once a script. Returns the lease, empty where nothing was.
local function grant()
  if not lease then return '' end
  if #tries > 2 then redis.call(unpack(tries)) end
  redis.call(unpack(holders))
  redis.call(unpack(scores))
  return lease
end
