-- Purpose: keeps the list of who reads the partitions of a stream: enters a member or strikes it off, and strikes off
--          those that were not heard of for a lease.
-- KEYS:    1 void, 2 members (sorted set: last heard of, ms)
-- ARGV:    1 what (beat, leave), 2 member, 3 lease (ms)
-- Reply:   the members
-- Bound:   linear in the members
-- Redis:   6.0
--#needs _time

local MEMBERS = @MEMBERS
-- The removal comes first: a server at maxmemory takes the other write behind it, see _full.lua.
redis.call('ZREMRANGEBYSCORE', MEMBERS, '-inf', '(' .. string.format('%.0f', now - tonumber(ARGV[3])))
if ARGV[1] == 'leave' then
  redis.call('ZREM', MEMBERS, ARGV[2])
else
  redis.call('ZADD', MEMBERS, string.format('%.0f', now), ARGV[2])
end
return redis.call('ZRANGE', MEMBERS, 0, -1)
