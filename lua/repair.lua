-- Purpose: one step of a look at a shard, which names what disagrees with the bodies, and settles it when asked to. What
--          is looked at is judged and settled at one moment, so that nothing that is under way is taken for damage.
-- KEYS:    1 void, 2 inbox:a, 3 inbox:b, 4 results, 5 results:b, 6 entries, 7 pending, 8 parked, 9 sent, 10 attempts,
--          11 errors, 12 leases, 13 broken, 14 seq, 15 repair, 16 due, 17 decided
-- ARGV:    1 'fix' or empty, 2 part (0: the first), 3 cursor in it, 4 about how many ids to look at
-- Reply:   server time (ms), next part (-1: done) and its cursor, then of each finding: kind, key, id, detail, 1 if it
--          was settled; or server time, 'identity' and the one found.
-- Bound:   linear in the ids; a small hash or sorted set is looked at whole, as HSCAN and ZSCAN do
-- Redis:   6.0

local FIX, LIMIT = ARGV[1] == 'fix', tonumber(ARGV[4])
local NOW = string.format('%.0f', now)

local wanted = {
  {'void', 'none'}, {'inbox:a', 'hash'}, {'inbox:b', 'hash'}, {'results', 'hash'}, {'results:b', 'hash'}, {'entries', 'hash'},
  {'pending', 'zset'}, {'parked', 'zset'}, {'sent', 'zset'}, {'attempts', 'hash'}, {'errors', 'hash'}, {'leases', 'hash'},
  {'broken', 'hash'}, {'seq', 'string'}, {'repair', 'hash'}, {'due', 'zset'}, {'decided', 'zset'},
}
local key, exists, sound = {}, {}, {} -- by name; sound: it has its type, or is not there
for i, w in ipairs(wanted) do
  local found = redis.call('TYPE', KEYS[i])
  found = type(found) == 'table' and found.ok or found
  key[w[1]], exists[w[1]], sound[w[1]], w[3] = KEYS[i], found ~= 'none', found == 'none' or found == w[2], found
end
local A, B = key['inbox:a'], key['inbox:b']

-- A shard of another keyspace is its owner's to repair.
if sound['inbox:a'] and sound['inbox:b'] then
  local identity = redis.call('HGET', A, 'id') or not exists['inbox:a'] and redis.call('HGET', B, 'id')
  if identity and identity ~= IDENTITY then return {NOW, 'identity', identity} end
end

-- Where one of these has another type nothing tells what belongs into the others.
local outbox = sound['inbox:a'] and sound.entries and sound.pending and sound.parked and sound.sent

local reply = {NOW, -1, '0'}
local function note(kind, name, id, detail, fixed)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5] = kind, name, id, detail, fixed and 1 or 0
end

-- Notes a finding, and settles it by a command.
local function settle(kind, name, id, detail, ...)
  if FIX then redis.call(...) end
  note(kind, name, id, detail, FIX)
end

local function types()
  for _, w in ipairs(wanted) do
    if not sound[w[1]] then note('type', w[1], '', w[3] .. ' instead of ' .. w[2]) end
  end
  local seq = exists.seq and sound.seq and redis.call('GET', key.seq)
  if seq and (not string.match(seq, '^%-?%d+$') or #seq > 18) then note('type', 'seq', '', 'no integer') end
end

-- A time in ms that has passed, or nil: a text, a time to come.
local function past(text)
  local ms = tonumber(text)
  return ms and ms <= now and ms or nil
end

-- B without A's flag is looked at by nobody: its ids would be applied again.
local function forgotten_b()
  local start = past(redis.call('HGET', B, 'start'))
  if start and now - start >= 3 * RETENTION then
    settle('stale', 'inbox:b', '', '', 'UNLINK', B)
  elseif exists['inbox:a'] then
    settle('unlinked', 'inbox:b', '', '', 'HSET', A, 'b', '1')
  else
    local tomb = redis.call('HGET', B, 'tomb') or '0'
    settle('unlinked', 'inbox:b', '', '', 'HSET', A, 'id', IDENTITY, 'start', NOW, 'b', '1', 'tomb', tomb)
  end
end

-- The generations by the rule of open_inbox, which a shard without commits never comes to.
local function inbox()
  local a, fields = redis.call('HMGET', A, 'id', 'start', 'b'), redis.call('HLEN', A)
  local start = past(a[2])
  local guarded = exists.entries or exists.due or exists.decided -- events and timers, by the identity
  local empty = fields == 1 and a[1] and not guarded
  if empty or start and now - start >= 2 * RETENTION then
    if exists['inbox:b'] then settle('stale', 'inbox:b', '', '', 'UNLINK', B) end
    settle('stale', 'inbox:a', '', '', 'UNLINK', A)
    if FIX and guarded then redis.call('HSET', A, 'id', IDENTITY) end -- they keep their owner
    return
  end
  if exists['inbox:a'] then
    if not a[1] then settle('value', 'inbox:a', 'id', '', 'HSET', A, 'id', IDENTITY) end
    if not start and not (fields == 1 and a[1]) then
      settle('value', 'inbox:a', 'start', a[2] or '', 'HSET', A, 'start', NOW)
    end
  end
  if not exists['inbox:b'] then
    if a[3] then settle('value', 'inbox:a', 'b', a[3], 'HDEL', A, 'b') end
  elseif start and now - start >= RETENTION then
    settle('stale', 'inbox:b', '', '', 'UNLINK', B)
    if FIX then redis.call('HDEL', A, 'b') end
  elseif not a[3] then
    forgotten_b()
  end
end

local function results(name)
  local text = redis.call('HGET', key[name], 'start')
  local start = past(text)
  if not start then
    settle('value', name, 'start', text or '', 'HSET', key[name], 'start', NOW)
  elseif now - start >= 2 * RETENTION then -- its last reply is a retention old
    settle('stale', name, '', '', 'UNLINK', key[name])
  end
end

local function is_sent(body) return string.sub(body, 1, 1) == '=' end
local function scored(name, id) return redis.call('ZSCORE', key[name], id) end
local function misplaced(name, id, detail) settle('misplaced', name, id, detail, 'ZREM', key[name], id) end

-- The body decides: what leaves a digest was sent; what has its body was not, whatever an index says, and must not be
-- lost. Parked goes before pending: an operator can re-arm it, and nobody can take a publish back.
local function entry(id, body)
  local pending, parked, sent = scored('pending', id), scored('parked', id), scored('sent', id)
  if is_sent(body) then
    if pending then misplaced('pending', id, 'sent') end
    if parked then misplaced('parked', id, 'sent') end
    if not sent then settle('unindexed', 'sent', id, '', 'ZADD', key.sent, NOW, id) end
    return
  end
  if sent then misplaced('sent', id, 'not sent') end
  if pending and parked then misplaced('pending', id, 'parked') end
  if not pending and not parked then settle('unindexed', 'pending', id, '', 'ZADD', key.pending, NOW, id) end
end

local function member(name, id, score)
  if redis.call('HEXISTS', key.entries, id) == 0 then
    settle('orphan', name, id, '', 'ZREM', key[name], id)
  elseif string.find(string.lower(score), 'inf', 1, true) then
    settle('value', name, id, score, 'ZADD', key[name], NOW, id)
  end
end

local function detail(name, id, value)
  local body = redis.call('HGET', key.entries, id)
  if not body or is_sent(body) then
    settle('leftover', name, id, body and 'sent' or 'no body', 'HDEL', key[name], id)
  elseif name == 'leases' and scored('parked', id) then
    settle('leftover', name, id, 'parked', 'HDEL', key[name], id)
  elseif name == 'attempts' and (not string.match(value, '^%d+$') or #value > 9) then
    settle('value', name, id, value, 'HDEL', key[name], id)
  end
end

local parts = {
  {'entries', 'HSCAN', function(_, id, body) entry(id, body) end},
  {'pending', 'ZSCAN', member}, {'parked', 'ZSCAN', member}, {'sent', 'ZSCAN', member},
  {'attempts', 'HSCAN', detail}, {'errors', 'HSCAN', detail}, {'leases', 'HSCAN', detail},
  {'broken', 'HSCAN', function(name, digest, left) note('broken', name, digest, left) end},
}

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
if parts[part] then reply[2], reply[3] = part, cursor end
return reply
