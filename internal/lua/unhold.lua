-- Purpose: makes events due that are held for a paused destination. settle.lua has marked them by half a millisecond in
--          their score, which no other score has: nobody's scheduled event, backoff or lease is touched.
-- KEYS:    1 void, 2 pending
-- ARGV:    1 for how long an event is held at most (ms), 2 score at which to begin (empty: now), 3 most members to look at
-- Reply:   server time (ms), how many were held, score at which to go on (empty: that was all)
-- Bound:   linear in the members looked at
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
local n = math.floor((#due - 2) / 2)
if #page < 2 * LIMIT then return {NOW, n, ''} end
local first, last = page[2], page[#page]
-- Those of one score are all held or none is: held ones have left it, and a page of others may be passed over.
return {NOW, n, first == last and not held(last) and '(' .. last or last}
