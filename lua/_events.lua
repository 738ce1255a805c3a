-- Purpose: events on their way into the outbox, inside a commit. Expects now (ms), and entries and pending as KEYS[4]
-- and KEYS[5].

local ENTRIES, PENDING = KEYS[4], KEYS[5]
local NOW = string.format('%.0f', now)
local waiting = 0 -- events in pending before this transaction
local enqueued = {} -- the events of this transaction, for its undo

-- Adds an event. Returns false where its id is known with another body.
local function enqueue(id, body, score)
  if redis.call('HSETNX', ENTRIES, id, body) == 1 then
    enqueued[#enqueued + 1] = id
    redis.call('ZADD', PENDING, score, id)
    return true
  end
  local old = redis.call('HGET', ENTRIES, id) -- the same event again, sent already or not, is no error
  return old == body or old == '=' .. redis.sha1hex(body)
end
