-- Purpose: takes over entries that have been idle for long, whichever consumer they are pending for, and notes the other
--          consumers for the fence of commit.lua. It counts no delivery. From Redis 7.0 on, an entry that is gone from the stream
--          leaves the group.
-- KEYS:    1  stream
--          2  taken
-- ARGV:    1  group
--          2  consumer  that takes them over
--          3  idle      ms, at least
--          4- entry
-- Reply:   the entries that were taken over
-- Bound:   linear in the entries, at most 1,000
-- Memory:  runs at maxmemory, because its first write never needs memory
-- Redis:   6.0
--#needs _time _taken

local STREAM, GROUP, CONSUMER, IDLE = @STREAM, ARGV[1], ARGV[2], tonumber(ARGV[3])

local claim, former = {'XCLAIM', STREAM, GROUP, CONSUMER, '0'}, {}
for i = 4, #ARGV do
  local pending = redis.call('XPENDING', STREAM, GROUP, ARGV[i], ARGV[i], '1')[1]
  if pending and pending[3] >= IDLE then
    claim[#claim + 1] = ARGV[i]
    if pending[2] ~= CONSUMER then former[pending[2]] = true end
  end
end
if #claim == 5 then return {} end
redis.call('XACK', STREAM, GROUP, '0-0') -- no entry has this id; a full server takes the writes after it
note_taken(GROUP, former)
claim[#claim + 1] = 'JUSTID' -- with fields, Redis 6 returns nil for an entry that is gone
return redis.call(unpack(claim))
