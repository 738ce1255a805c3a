-- Purpose: keeps the list of the running processes of a namespace. It adds a process with its first heartbeat, renews it with each
--          further one, and removes it when it stops. It forgets processes that have sent no heartbeat for long.
-- KEYS:    1  void
--          2  processes   hash: id -> since when (ms), a blank, what the process last reported, as JSON
--          3  heartbeats  sorted set: id by its last heartbeat, ms
-- ARGV:    1  act         beat or leave
--          2  id          of the process
--          3  report      JSON
--          4  forget      forget processes that have sent no heartbeat for so long, ms
--          5  most        most processes to keep: the one with the oldest heartbeat gives way
-- Reply:   1  time        server time, ms
-- Bound:   constant
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full

local PROCESSES, HEARTBEATS, ACT, ID = @PROCESSES, @HEARTBEATS, ARGV[1], ARGV[2]
local FORGOTTEN_AT_ONCE = 4

local function forget(id)
  redis.call('ZREM', HEARTBEATS, id)
  redis.call('HDEL', PROCESSES, id)
end

if ACT == 'leave' then
  forget(ID)
  return {NOW}
end

write_though_full()
local known = redis.call('HGET', PROCESSES, ID)
local since = known and string.match(known, '^%d+') or NOW
redis.call('HSET', PROCESSES, ID, since .. ' ' .. ARGV[3])
redis.call('ZADD', HEARTBEATS, NOW, ID)

local oldest = redis.call('ZRANGE', HEARTBEATS, 0, FORGOTTEN_AT_ONCE - 1, 'WITHSCORES')
for i = 1, #oldest, 2 do
  if tonumber(oldest[i + 1]) < now - tonumber(ARGV[4]) then forget(oldest[i]) end
end
local beyond = redis.call('ZRANGE', HEARTBEATS, ARGV[5], ARGV[5])
if #beyond > 0 then forget(redis.call('ZRANGE', HEARTBEATS, 0, 0)[1]) end
return {NOW}
