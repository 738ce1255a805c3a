-- Purpose: names the keys of a shard's outbox by the void key, which is the first declared one. A script that uses this fragment
-- declares each key that it touches. The fragment also keeps the counts.
--
-- counts holds gauges and counters. These are the gauges:
--   events, bytes         events that are neither sent nor parked, and the bytes of their bodies
--   parked, parked_bytes  parked events, and the bytes of their bodies
--#defines shard INBOX ENTRIES PENDING ATTEMPTS LEASES ERRORS PARKED SENT SEQ COUNTS PARKED_BY ROUTES HEADERS LANES
--#defines count keep_counts

local shard = string.sub(@VOID, 1, -5)
local INBOX, ENTRIES, PENDING, ATTEMPTS = shard .. 'inbox:a', shard .. 'entries', shard .. 'pending', shard .. 'attempts'
local LEASES, ERRORS, PARKED, SENT = shard .. 'leases', shard .. 'errors', shard .. 'parked', shard .. 'sent'
local SEQ, COUNTS, PARKED_BY, ROUTES = shard .. 'seq', shard .. 'counts', shard .. 'parked:by', shard .. 'routes'
local HEADERS, LANES = shard .. 'headers', shard .. 'lanes'

local changes = {}
local function count(name, n) changes[name] = (changes[name] or 0) + n end

-- Keeps the counts, once a script.
local function keep_counts()
  for name, n in pairs(changes) do
    if n ~= 0 then redis.call('HINCRBY', COUNTS, name, n) end
  end
  changes = {}
end
