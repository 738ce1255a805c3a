-- Purpose: keeps the list of the members that read the partitions of a stream. It adds or removes a member, and removes members
--          that have not sent a beat for the duration of a lease, or whose last beat comes from a faster clock.
-- KEYS:    1  void
--          2  members  sorted set: member by its last beat, ms
-- ARGV:    1  act      beat or leave
--          2  member
--          3  lease    ms
-- Reply:   the members
-- Bound:   linear in the members
-- Redis:   6.0
--#needs _time

local MEMBERS = @MEMBERS
-- The removal comes first, because a server at maxmemory then accepts the other write, see _full.lua.
redis.call('ZREMRANGEBYSCORE', MEMBERS, '-inf', '(' .. string.format('%.0f', now - tonumber(ARGV[3])))
redis.call('ZREMRANGEBYSCORE', MEMBERS, '(' .. NOW, '+inf')
if ARGV[1] == 'leave' then
  redis.call('ZREM', MEMBERS, ARGV[2])
else
  redis.call('ZADD', MEMBERS, string.format('%.0f', now), ARGV[2])
end
return redis.call('ZRANGE', MEMBERS, 0, -1)
