-- Purpose: extends the leases of events that are about to be published. If a lease is still held, the script writes something in
--          every case. A WAIT behind it then covers all earlier writes of this server, with the commits of the events.
-- KEYS:    1  void
--          2  pending
--          3  leases
--          4  seq
-- ARGV:    1  lease   ms
--          then for each event
--          +1 id
--          +2 lease   empty: the committer's own, before any claim
-- Reply:   1  time    server time, ms
--          then for each event
--          +1 held    1 if the event is still held under its lease, else 0
-- Bound:   linear in the arguments
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full

local PENDING, LEASES = @PENDING, @LEASES
local lease_end = string.format('%.0f', now + tonumber(ARGV[1]))
write_though_full()
local reply, any = {string.format('%.0f', now)}, false
for i = 2, #ARGV, 2 do
  local id = ARGV[i]
  local held = redis.call('ZSCORE', PENDING, id) and (redis.call('HGET', LEASES, id) or '') == ARGV[i + 1]
  if held then
    redis.call('ZADD', PENDING, lease_end, id)
    any = true
  end
  reply[#reply + 1] = held and 1 or 0
end
if any then redis.call('INCR', @SEQ) end -- ZADD writes nothing if the score was the same before
return reply
