-- Purpose: takes, keeps or gives back the lease of a partition, by the server's clock. A lease that ran out still
--          belongs to its owner until another one takes it.
-- KEYS:    1 void, 2 lease (hash: owner, until in ms)
-- ARGV:    1 what (take, keep, free), 2 owner, 3 lease (ms), 4 take: for how long it must have been free (ms)
-- Reply:   1 if it was done, else 0
-- Bound:   constant
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full

local LEASE, WHAT, OWNER = @LEASE, ARGV[1], ARGV[2]
local held = redis.call('HMGET', LEASE, 'owner', 'until')
local owner, until_ = held[1], tonumber(held[2])

if WHAT == 'take' and owner ~= OWNER then
  local patience = tonumber(ARGV[4])
  if until_ and until_ + patience > now or not until_ and patience > 0 then return 0 end
elseif owner ~= OWNER then
  return 0
end
write_though_full()
if WHAT == 'free' then owner, until_ = '', now else owner, until_ = OWNER, now + tonumber(ARGV[3]) end
redis.call('HSET', LEASE, 'owner', owner, 'until', string.format('%.0f', until_))
return 1
