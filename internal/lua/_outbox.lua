-- Purpose: names the keys of a shard's outbox by the void key, which is the first declared one. A script that uses this fragment
-- declares each key that it touches. The fragment also keeps the counts.
--
-- counts holds these fields:
--   bytes         see _bytes.lua
--   parked_bytes  size of the bodies of parked events
--   left          number of events that were sent, parked or deleted, without those that were re-armed or replayed. Together with
--                 the events that are neither sent nor parked, it is the number of all events that were ever new to the outbox,
--                 which only grows. If many parked events were imported and then re-armed, left is negative
--   others        counters
--#needs _bytes
--#defines shard INBOX ENTRIES PENDING ATTEMPTS ERRORS PARKED SENT SEQ COUNTS PARKED_BY ROUTES HEADERS LANES
--#defines count keep_counts

local shard = string.sub(@VOID, 1, -5)
local INBOX, ENTRIES, PENDING, ATTEMPTS = shard .. 'inbox:a', shard .. 'entries', shard .. 'pending', shard .. 'attempts'
local ERRORS, PARKED, SENT, SEQ = shard .. 'errors', shard .. 'parked', shard .. 'sent', shard .. 'seq'
local COUNTS, PARKED_BY, ROUTES = shard .. 'counts', shard .. 'parked:by', shard .. 'routes'
local HEADERS, LANES = shard .. 'headers', shard .. 'lanes'

local changes = {}
local function count(name, n) changes[name] = (changes[name] or 0) + n end

-- Keeps the counts, once a script. No size falls below 0: if it was wrong before, a repair corrects it.
local function keep_counts()
  if changes.bytes or changes.parked_bytes then
    local old = redis.call('HMGET', COUNTS, 'bytes', 'parked_bytes')
    local bytes, idle = bytes_in(old[1])
    bytes = math.max(0, bytes + (changes.bytes or 0))
    redis.call('HSET', COUNTS, 'bytes', bytes_of(bytes, idle, redis.call('ZCARD', PARKED) > 0))
    if changes.parked_bytes then
      redis.call('HSET', COUNTS, 'parked_bytes', math.max(0, (tonumber(old[2]) or 0) + changes.parked_bytes))
    end
    changes.bytes, changes.parked_bytes = nil, nil
  end
  for name, n in pairs(changes) do
    if n ~= 0 and type(redis.pcall('HINCRBY', COUNTS, name, n)) ~= 'number' then redis.call('HSET', COUNTS, name, n) end -- it was malformed
  end
  changes = {}
end
