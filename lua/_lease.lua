-- Purpose: leases, in batches. Uses the names of _outbox.lua.

local lease -- of what this script takes, by the shard's sequence
local tries, holders, scores, last = {'HSET', ATTEMPTS}, {'HSET', LEASES}, {'ZADD', PENDING}, 2

-- Takes an event under the lease, until then (ms). A number is slow to become a text, and most attempts are the first.
local function take(id, attempt, until_)
  lease = lease or string.format('%.0f', redis.call('INCR', SEQ))
  local at, to = last + 1, last + 2
  tries[at], tries[to] = id, attempt == 1 and '1' or attempt
  holders[at], holders[to] = id, lease
  scores[at], scores[to] = until_, id
  last = to
end

-- Keeps what was taken, once a script. Returns the lease, empty where nothing was.
local function grant()
  if not lease then return '' end
  redis.call(unpack(tries))
  redis.call(unpack(holders))
  redis.call(unpack(scores))
  return lease
end
