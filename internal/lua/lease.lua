-- Purpose: takes, keeps or frees the lease of a partition, by the server's clock. An expired lease still belongs to its owner
--          until another one takes it. A lease that ends after more than ten leases of the caller comes from a faster clock, and is
--          free.
-- KEYS:    1  void
--          2  lease     hash: owner, until (ms)
-- ARGV:    1  act       take, keep or free
--          2  owner
--          3  lease     ms
--          4  patience  for take: how long the lease must have been free, ms
-- Reply:   1  it was done
--          0  it was not done
-- Bound:   constant
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full

local LEASE, WHAT, OWNER = @LEASE, ARGV[1], ARGV[2]
local held = redis.call('HMGET', LEASE, 'owner', 'until')
local owner, expires = held[1], tonumber(held[2])
if expires and expires > now + 10 * tonumber(ARGV[3]) then expires = now end

if WHAT == 'take' and owner ~= OWNER then
  local patience = tonumber(ARGV[4])
  if expires and expires + patience > now or not expires and patience > 0 then return 0 end
elseif owner ~= OWNER then
  return 0
end
write_though_full()
if WHAT == 'free' then owner, expires = '', now else owner, expires = OWNER, now + tonumber(ARGV[3]) end
redis.call('HSET', LEASE, 'owner', owner, 'until', string.format('%.0f', expires))
return 1
