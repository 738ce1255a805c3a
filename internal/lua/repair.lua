-- Purpose: one step of a look at a shard, which names what disagrees with the bodies, and settles it when asked to. What
--          is looked at is judged and settled at one moment, so that nothing that is under way is taken for damage.
-- KEYS:    1 void, 2 inbox:a, 3 inbox:b, 4 results, 5 results:b, 6 entries, 7 pending, 8 parked, 9 sent, 10 attempts,
--          11 errors, 12 leases, 13 broken, 14 seq, 15 repair, 16 due, 17 decided, 18 headers, 19 lanes, 20 routes,
--          21 counts, 22 parked:by, 23 audit, 24 sweep, 25 pauses
-- ARGV:    1 'fix' or empty, 2 part (0: the first), 3 cursor in it, 4 about how many ids to look at; then, but for the
--          first step, the sums of the one before
-- Reply:   server time (ms), next part (-1: done) and its cursor, the sums, then of each finding: kind, key, id, detail,
--          1 if it was settled; or server time, 'identity' and the one found.
-- Bound:   linear in the ids; a small hash or sorted set is looked at whole, as HSCAN and ZSCAN do
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full _outbox _lanes _errors _park _repair _repair_inbox _repair_counts _repair_outbox

local parts = {
  {'headers', 'HSCAN', header}, {'lanes', 'ZSCAN', lane_member},
  {'entries', 'HSCAN', function(_, id, body) entry(id, body) end},
  {'pending', 'ZSCAN', member}, {'parked', 'ZSCAN', member}, {'sent', 'ZSCAN', member},
  {'attempts', 'HSCAN', detail}, {'errors', 'HSCAN', detail}, {'leases', 'HSCAN', detail},
  {'routes', 'HSCAN', detail},
  {'broken', 'HSCAN', function(name, digest, left) report('broken', name, digest, left) end},
}

if FIX then write_though_full() end
local part, cursor, seen = tonumber(ARGV[2]), ARGV[3], 0
if part == 0 then
  types()
  if sound['inbox:a'] and sound['inbox:b'] then inbox() end
  for _, name in ipairs({'results', 'results:b'}) do
    if exists[name] and sound[name] then results(name) end
  end
  part = 1
end
while parts[part] and seen < LIMIT do
  local name, scan, judge = unpack(parts[part])
  if exists[name] and sound[name] and (outbox or name == 'broken') then
    local step = redis.call(scan, key[name], cursor, 'COUNT', LIMIT)
    local rows = step[2]
    for i = 1, #rows, 2 do judge(name, rows[i], rows[i + 1]) end
    cursor, seen = tostring(step[1]), seen + #rows / 2 + 10 -- a sparse one has many steps without an id
  else
    cursor = '0'
  end
  if cursor == '0' then part = part + 1 end
end
if parts[part] then
  reply[2], reply[3], reply[4] = part, cursor, sums()
else
  counts()
end
return reply
