-- Purpose: runs one step of the repair of a shard: it reports each item that disagrees with the bodies, and corrects it on request.
--          It checks and corrects an item in the same step, so that it never mistakes work in progress for damage.
-- KEYS:    1     void
--          2     inbox:a
--          3     inbox:b
--          4     results
--          5     results:b
--          6     entries
--          7     pending
--          8     parked
--          9     sent
--          10    attempts
--          11    errors
--          12    broken
--          13    seq
--          14    repair
--          15    due
--          16    decided
--          17    headers
--          18    lanes
--          19    routes
--          20    counts
--          21    parked:by
--          22    audit
--          23    sweep
--          24    pauses
--          25    bodies
--          26    positions
--          27    generations
-- ARGV:    1     fix       'fix' corrects each finding; empty only reports it
--          2     part      0: the first part
--          3     cursor    in the part
--          4     limit     about how many ids to check
--          5-    sums      of the step before, see _repair_counts.lua; the first step has none
-- Reply:   1     time      server time, ms
--          2     part      the next part; -1: done
--          3     cursor    in the next part
--          4     sums      for the next step
--          then for each finding
--          +1    kind
--          +2    key
--          +3    id
--          +4    detail
--          +5    fixed     1 if it was corrected, else 0
--          or    time, 'identity', the identity found
-- Bound:   linear in the ids; a small hash or sorted set is read as a whole, as HSCAN and ZSCAN do
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full _outbox _lanes _errors _body _park _repair _repair_inbox _repair_counts _repair_outbox

local parts = {
  {'headers', 'HSCAN', header}, {'lanes', 'ZSCAN', lane_member},
  {'entries', 'HSCAN', function(_, id, body) entry(id, body) end},
  {'bodies', 'HSCAN', large_body}, {'pending', 'ZSCAN', member}, {'parked', 'ZSCAN', member}, {'sent', 'ZSCAN', member},
  {'attempts', 'HSCAN', detail}, {'errors', 'HSCAN', detail}, {'routes', 'HSCAN', detail},
  {'broken', 'HSCAN', function(name, digest, left) report('broken', name, digest, left) end},
}

if FIX then write_though_full() end
local part, cursor, seen = tonumber(ARGV[2]), ARGV[3], 0
if part == 0 then
  types()
  if sound['inbox:a'] and sound['inbox:b'] then inbox() end
  for _, name in ipairs({'results:b', 'results'}) do
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
    cursor, seen = tostring(step[1]), seen + #rows / 2 + 10 -- a sparse hash has many steps without an id
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
