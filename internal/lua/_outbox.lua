-- Purpose: names the keys of a shard's outbox by the void key, which is the first declared one. A script that uses this fragment
-- declares each key that it touches. The fragment also keeps the counts.
--
-- counts holds counters, a field each, and the gauges of _totals.lua.
--#needs _totals
--#defines shard INBOX ENTRIES PENDING ATTEMPTS ERRORS PARKED SENT SEQ COUNTS PARKED_BY ROUTES HEADERS LANES
--#defines count keep_counts

local shard = string.sub(@VOID, 1, -5)
local INBOX, ENTRIES, PENDING, ATTEMPTS = shard .. 'inbox:a', shard .. 'entries', shard .. 'pending', shard .. 'attempts'
local ERRORS, PARKED, SENT, SEQ = shard .. 'errors', shard .. 'parked', shard .. 'sent', shard .. 'seq'
local COUNTS, PARKED_BY, ROUTES = shard .. 'counts', shard .. 'parked:by', shard .. 'routes'
local HEADERS, LANES = shard .. 'headers', shard .. 'lanes'

local changes = {}
local function count(name, n) changes[name] = (changes[name] or 0) + n end

-- Keeps the counts, once a script. No gauge falls below 0: if it was wrong before, a repair corrects it.
local function keep_counts()
  local totals
  for i, name in ipairs({'events', 'bytes', 'enqueued', 'parked', 'parked_bytes'}) do
    local n = changes[name] or 0
    if n ~= 0 then
      totals = totals or {totals_in(redis.call('HGET', COUNTS, 'totals'))}
      totals[i] = math.max(0, totals[i] + n)
    end
    changes[name] = nil
  end
  if totals then redis.call('HSET', COUNTS, 'totals', totals_of(unpack(totals))) end
  for name, n in pairs(changes) do
    if n ~= 0 then redis.call('HINCRBY', COUNTS, name, n) end
  end
  changes = {}
end
