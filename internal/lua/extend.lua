-- Purpose: extends the leases of events that are about to be published. If a lease is still held, the script always writes. A
--          WAIT behind it then covers all earlier writes of this server, including the commits of the events.
-- KEYS:    1  void
--          2  pending
--          3  seq
-- ARGV:    1  lease   ms
--          then for each event
--          +1 id
--          +2 lease   empty: the committer's own, before any claim
-- Reply:   1  time    server time, ms
--          2  lease   the new one, of events that were leased before; empty: no event is held
--          then for each event
--          +1 held    1 if the event was still held under its lease, else 0
-- Bound:   linear in the arguments
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full _outbox _lease

local lease_end = now + tonumber(ARGV[1])
write_though_full()
local reply = {NOW, ''}
for i = 2, #ARGV, 2 do
  local id, held = ARGV[i], ARGV[i + 1]
  local mine = holds(redis.call('ZSCORE', PENDING, id), held)
  if mine then
    local lease = lease_until(lease_end)
    place(id, held == '' and string.format('%.0f', lease_end) or lease)
  end
  reply[#reply + 1] = mine and 1 or 0
end
reply[2] = grant()
return reply
