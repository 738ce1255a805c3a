-- Purpose: claims a batch of events for a relay: those whose lease has expired, or else those that are due, oldest first. It counts
--          the attempt and gives a lease. It parks an event that has used up its attempts, because its relay died every
--          time, and removes index members without a body. An event whose lease expired may have crashed its relay, so claims
--          isolate such events in smaller and smaller batches, and at the last attempt alone.
-- KEYS:    1     void
--          2-14  outbox       the keys of the outbox, see outboxKeys in layout.go
-- ARGV:    1     limit        most events to claim
--          2     lease        ms
--          3     attempts     attempts allowed for each event
--          4     continues    1: a lane continues without its parked events
-- Reply:   1     time         server time, ms
--          2     next due     when the next event is due, ms; empty: none waits
--          3     lease        of the events below; empty: there are none
--          4     parked       number of events parked
--          5     orphans      number of index members without a body
--          then for each event
--          +1    id
--          +2    attempt      counted from 1
--          +3    destination  empty: as the body says
--          +4    body
--          or    time, 'identity', the identity found
-- Bound:   linear in the limit
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _meta _full _outbox _lanes _errors _body _park _lease

local budget, lease_end, continues = tonumber(ARGV[3]), now + tonumber(ARGV[2]), ARGV[4] == '1'

-- Returns the first score of pending in a range, or nil.
local function first(from, to)
  return tonumber(redis.call('ZRANGEBYSCORE', PENDING, from, to, 'WITHSCORES', 'LIMIT', 0, 1)[2])
end

-- Returns when a relay can claim the next event. If that is later than now, notes it for the next commit, which wakes the relays.
local function next_due()
  local due, expires = first('0', '+inf'), first('-inf', '(0')
  expires = expires and math.ceil(expires + @LEASED)
  due = due and expires and math.min(due, expires) or due or expires
  if not due or due > now then
    local bytes = redis.call('HGET', COUNTS, 'bytes')
    local _, idle = bytes_in(bytes)
    if bytes and not idle then
      write_though_full()
      redis.pcall('HINCRBY', COUNTS, 'bytes', '@IDLE')
    end
  end
  return due and string.format('%.0f', due) or ''
end

local function range(from, to) return redis.call('ZRANGEBYSCORE', PENDING, from, to, 'LIMIT', 0, ARGV[1]) end

local ids = range('-inf', string.format('%.0f', now - @LEASED))
local suspects = #ids > 0 -- events whose lease expired
if not suspects then ids = range('0', NOW) end
if #ids == 0 then return {NOW, next_due(), '', 0, 0} end
local meta = redis.call('HGET', INBOX, 'id')
if meta and identity_in(meta) ~= @IDENTITY then return {NOW, 'identity', identity_in(meta)} end
write_though_full()

-- Returns the value of each event in a hash. Most shards have no such hash, and HMGET of a missing one reads every field.
local function of_each(key)
  return redis.call('EXISTS', key) == 1 and redis.call('HMGET', key, unpack(ids)) or {}
end

local bodies = redis.call('HMGET', ENTRIES, unpack(ids))
local attempts, routes = of_each(ATTEMPTS), of_each(ROUTES)
local taken, room = 0, tonumber(ARGV[1]) -- number so far; most of them

-- Reports whether a suspect may join those that are claimed already.
local function joins(attempt)
  room = math.min(room, attempt >= budget and 1 or math.floor(ARGV[1] / 4 ^ (attempt - 1)))
  if taken > 0 and taken >= room then return false end
  taken = taken + 1
  return true
end

local reply, last_row, parked, orphans = {NOW, '', '', 0, 0}, 5, 0, 0
local first_byte = string.byte
for i = 1, #ids do
  local id, body, tried, attempt = ids[i], bodies[i], attempts[i], 1
  if tried or suspects then attempt = attempts_of(tried, suspects) + 1 end
  if not body or first_byte(body) == @SENT_MARK then
    redis.call('ZREM', PENDING, id)
    leave(id)
    orphans = orphans + 1
  elseif attempt > budget then
    note(id, attempt - 1, 'crashed', 'the lease ran out at the last attempt: its relay died or hung')
    park(id, body, continues)
    parked = parked + 1
  elseif not suspects or joins(attempt) then
    take(id, attempt, tried, lease_end)
    local n = last_row
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = id, attempt, routes[i] or '', body
    last_row = n + 4
  end
end
count('orphans', orphans)
keep_counts()
reply[3], reply[4], reply[5] = grant(), parked, orphans
reply[2] = next_due()
return reply
