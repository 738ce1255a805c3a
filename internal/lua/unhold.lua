-- Purpose: makes events due that are held for a paused destination. settle.lua has flagged them by half a millisecond in their
--          score. No other score has it, so scheduled events, backoffs and leases stay as they are.
-- KEYS:    1  void
--          2  pending
-- ARGV:    1  hold    how long an event is held at most, ms
--          2  score   at which to begin; empty: now
--          3  limit   most members to read
-- Reply:   1  time    server time, ms
--          2  held    number of events that were held
--          3  score   at which to continue; empty: that was all
-- Bound:   linear in the members read
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full

local PENDING, LIMIT = @PENDING, tonumber(ARGV[3])
local from = ARGV[2] == '' and '(' .. NOW or ARGV[2]
local page = redis.call('ZRANGEBYSCORE', PENDING, from, string.format('%.1f', now + tonumber(ARGV[1]) + 1), 'WITHSCORES', 'LIMIT', 0, LIMIT)
local function held(score) return tonumber(score) % 1 ~= 0 end
local due = {'ZADD', PENDING}
for i = 1, #page, 2 do
  if held(page[i + 1]) then
    due[#due + 1] = NOW
    due[#due + 1] = page[i]
  end
end
if #due > 2 then
  write_though_full()
  redis.call(unpack(due))
end
local released = math.floor((#due - 2) / 2)
if #page < 2 * LIMIT then return {NOW, released, ''} end
local first, last = page[2], page[#page]
-- Members with one score are all held or none is. Held ones have left the score, and the next page may skip the others.
return {NOW, released, first == last and not held(last) and '(' .. last or last}
