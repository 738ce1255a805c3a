-- Purpose: leases, in batches. Uses the names of _outbox.lua.

local lease -- of what this script takes, by the shard's sequence
local tries, holders, scores = {'HSET', ATTEMPTS}, {'HSET', LEASES}, {'ZADD', PENDING}

-- Takes an event under the lease, until then (ms).
local function take(id, attempt, until_)
  lease = lease or string.format('%.0f', redis.call('INCR', SEQ))
  local n = #tries
  tries[n + 1], tries[n + 2] = id, attempt
  holders[n + 1], holders[n + 2] = id, lease
  scores[n + 1], scores[n + 2] = until_, id
end

-- Keeps what was taken, once a script. Returns the lease, empty where nothing was.
local function grant()
  if not lease then return '' end
  redis.call(unpack(tries))
  redis.call(unpack(holders))
  redis.call(unpack(scores))
  return lease
end
