-- Purpose: moves the leases of events that are about to be published. It writes whenever it finds one that is still
--          held: a WAIT behind it is then about everything that this server took before, the events' commits included.
-- KEYS:    1 void, 2 pending, 3 leases, 4 seq
-- ARGV:    1 lease (ms), then id and lease (empty: the committer's own, before any claim) of each event
-- Reply:   server time (ms), then for each event 1 if it is still held under its lease, or 0
-- Bound:   linear in the arguments
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full

local PENDING, LEASES = @PENDING, @LEASES
local until_ = string.format('%.0f', now + tonumber(ARGV[1]))
write_though_full()
local reply, any = {string.format('%.0f', now)}, false
for i = 2, #ARGV, 2 do
  local id = ARGV[i]
  local held = redis.call('ZSCORE', PENDING, id) and (redis.call('HGET', LEASES, id) or '') == ARGV[i + 1]
  if held then
    redis.call('ZADD', PENDING, until_, id)
    any = true
  end
  reply[#reply + 1] = held and 1 or 0
end
if any then redis.call('INCR', @SEQ) end -- the score may have been that before
return reply
