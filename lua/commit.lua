-- Purpose: commits a batch of transactions of one slot: inbox mark, events, business commands and the
--          acknowledgement of the input, each transaction whole or not at all.
-- KEYS:    1 void (never exists: while a slot migrates, a missing declared key makes the cluster answer
--          TRYAGAIN before anything runs), 2 inbox:a, 3 inbox:b, 4 entries, 5 pending, 6 broken; then every
--          input stream and business key of the batch, declared and used by name.
-- ARGV:    1 number of transactions, 2 what the server restores by DUMP (2 anything, 1 strings, 0 nothing); for
--          each transaction: size (arguments, this one included), digest, token, not after (ms), acknowledge (0 no,
--          1 fence only, 2 fence and XACK), stream, group, consumer, entry, delay of its events (ms), number of
--          events, number of commands; then id and body of each event; then of each command a head (see _undo.lua)
--          and the command itself.
-- Reply:   server time (ms), then for each transaction: {'committed', 1 if acknowledged, reply of each
--          command …}, {'replayed' | 'duplicate', 1 if acknowledged, 1 if by this very token}, {'expired'},
--          {'fenced'}, {'full'}, {'failed', index of the command (an event: negative), error}, {'refused', the
--          server's error}, {'broken', what was left}; or {'identity', the one found} alone for the whole batch.
-- Bound:   linear in the arguments; the client caps transactions, commands and bytes.
-- Redis:   6.0

local ENTRIES, PENDING, BROKEN = KEYS[4], KEYS[5], KEYS[6]
local NOW = string.format('%.0f', now)

-- Where each transaction begins, and one look at the inbox for all of them.
local count, at, ask = tonumber(ARGV[1]), {}, {'HMGET', A, 'id', 'start', 'b', 'tomb'}
local next_at = 3
for i = 1, count do
  at[i] = next_at
  ask[i + 6] = ARGV[next_at + 1]
  next_at = next_at + tonumber(ARGV[next_at])
end
local in_a, in_b, start, horizon = open_inbox(now, ask)
if not in_a then return {NOW, {'identity', in_b}} end
local waiting = redis.call('ZCARD', PENDING)
local fresh, kept = not start, false -- the shard's first transaction; a mark that stays

local function error_text(e) return type(e) == 'table' and e.err or tostring(e) end

-- The entry is still pending for this consumer: nobody claimed it while the handler ran.
local function owned(p)
  local found = redis.pcall('XPENDING', ARGV[p + 5], ARGV[p + 6], ARGV[p + 8], ARGV[p + 8], 1, ARGV[p + 7])
  if found.err then return false end -- NOGROUP: nobody owns it any more
  return #found > 0
end

local enqueued = {} -- the events of this transaction, for its undo

local function enqueue(id, body, score)
  if redis.call('HSETNX', ENTRIES, id, body) == 1 then
    enqueued[#enqueued + 1] = id
    redis.call('ZADD', PENDING, score, id)
    return true
  end
  local old = redis.call('HGET', ENTRIES, id) -- the same event again, sent already or not, is no error
  return old == body or old == '=' .. redis.sha1hex(body)
end

-- The reply of an integer command, exact: Lua's numbers are not from 2^53 on.
local function exact(reply, p)
  local name = string.upper(ARGV[p])
  if string.find(name, '^HINCR') then return redis.call('HGET', ARGV[p + 1], ARGV[p + 2]) end
  if string.find(name, '^INCR') or string.find(name, '^DECR') then return redis.call('GET', ARGV[p + 1]) end
  return reply
end

-- Steps 7 and 8. Returns nil, or the index of what failed and why.
local function run(p, reply)
  local events, commands, q = tonumber(ARGV[p + 10]), tonumber(ARGV[p + 11]), p + 12
  local score = ARGV[p + 9] == '0' and NOW or string.format('%.0f', now + tonumber(ARGV[p + 9]))
  for i = 1, events do
    if not enqueue(ARGV[q], ARGV[q + 1], score) then return -i, 'the event exists with another body' end
    q = q + 2
  end
  for i = 1, commands do
    local head = ARGV[q]
    local first, last = q + 1, q + tonumber(string.sub(head, 3))
    if i < commands then -- the last one needs no undo: it works or changes nothing
      local why = remember(head, ARGV, first, last)
      if why then return i, why end
    end
    local r = redis.pcall(unpack(ARGV, first, last))
    if type(r) == 'table' and r.err then return i, r.err end
    if type(r) == 'number' and (r >= 9007199254740992 or r <= -9007199254740992) then r = exact(r, first) end
    reply[i + 2] = r
    q = last + 1
  end
end

-- The answer to an id that has been seen.
local function known(seen, digest, token)
  local word = verdict(seen, token)
  return {word, word == 'broken' and redis.call('HGET', BROKEN, digest) or 0, seen == token and 1 or 0}
end

local function commit(p, seen)
  local digest, token = ARGV[p + 1], ARGV[p + 2]

  -- 1. Known? Before too late: the late retry of a committed token must hear that it is in.
  if seen then return known(seen, digest, token) end
  if horizon > now and (redis.call('HEXISTS', A, 't' .. token) == 1 or redis.call('HEXISTS', B, 't' .. token) == 1) then
    return {'expired'}
  end
  -- 2. Too late? The network may deliver a script long after its sender gave up.
  if now > tonumber(ARGV[p + 3]) then return {'expired'} end
  -- 3. Fence.
  if ARGV[p + 4] ~= '0' and not owned(p) then return {'fenced'} end
  -- 5. Capacity.
  if ARGV[p + 10] ~= '0' and waiting + tonumber(ARGV[p + 10]) > CAPACITY then return {'full'} end

  -- 6. Mark: the first write, so that a server that takes none says so with nothing done.
  if not start then
    local r = redis.pcall('HSET', A, 'id', IDENTITY, 'start', NOW)
    if type(r) == 'table' then return {'refused', r.err} end
    start = now
  end
  local marked = redis.pcall('HSETNX', A, digest, token)
  if type(marked) == 'table' then return {'refused', marked.err} end
  if marked == 0 then return known(redis.call('HGET', A, digest), digest, token) end -- twice in this batch

  -- 7, 8. Events and business; all of it under pcall, for a Lua error too would leave the mark behind.
  local reply = {'committed', 0}
  local ok, index, why = pcall(run, p, reply)
  if ok and not index then
    waiting, kept = waiting + tonumber(ARGV[p + 10]), true
    depth, enqueued = 0, {}
    return reply
  end
  if not ok then index, why = 0, error_text(index) end

  -- 9. Undo, the mark included; what cannot be undone keeps it, and says so to every redelivery.
  local left = rollback()
  for i = #enqueued, 1, -1 do
    left = restore({'ZREM', PENDING, enqueued[i]}, left)
    left = restore({'HDEL', ENTRIES, enqueued[i]}, left)
  end
  enqueued = {}
  if not left then left = restore({'HDEL', A, digest}) end
  if not left then return {'failed', index, why} end
  left = 'command ' .. index .. ': ' .. why .. '; not restored: ' .. left
  redis.call('HSET', BROKEN, digest, left)
  redis.call('HSET', A, digest, token .. '!')
  kept = true
  return {'broken', left}
end

local replies = {NOW}
for i = 1, count do
  replies[i + 1] = commit(at[i], in_a[4 + i] or (in_b and in_b[4 + i]))
end
if fresh and start and not kept then redis.call('UNLINK', A) end -- nothing happened here after all

-- The acknowledgements, last and outside the undo: should one fail, the redelivery finds the mark.
for i = 1, count do
  local p, reply = at[i], replies[i + 1]
  local word = reply[1]
  if ARGV[p + 4] == '2' and (word == 'committed' or word == 'replayed' or word == 'duplicate') then
    local r = redis.pcall('XACK', ARGV[p + 5], ARGV[p + 6], ARGV[p + 8])
    if type(r) == 'number' then reply[2] = 1 end
  end
end
return replies
