-- Purpose: commits a batch of transactions of one slot: inbox mark, events, business commands and the
--          acknowledgement of the input, each transaction whole or not at all.
-- KEYS:    1 void (never exists: while a slot migrates, a missing declared key makes the cluster answer
--          TRYAGAIN before anything runs), 2 inbox:a, 3 inbox:b, 4 entries, 5 pending, 6 broken, 7 counts; then results and
--          results:b where replies are kept, headers, lanes, seq and attempts where events may be ordered or scheduled,
--          every input stream and every key of the batch, used by name.
-- ARGV:    1 number of transactions, 2 what can be restored whole (2 any key, 1 strings); for each transaction: size
--          (arguments, this one included), digest, token, not after (ms), acknowledge (0 no, 1 fence only, 2 fence
--          and XACK), stream, group, consumer, entry, delay of its events (ms), number of events, of commands, of
--          guards, 1 to keep the replies; then of each guard a head (order of the reply, see _reply.lua, and number
--          of arguments), the digest and the read; id, head (see _events.lua) and body of each event; of each command a head (see _undo.lua)
--          and the command itself. Class p is a procedure: name, number of keys, keys, arguments.
-- Reply:   server time (ms), then for each transaction: {'committed', 1 if acknowledged + 2 if events
--          came that nobody has yet, and nothing else is due, reply of each command …, id, head and body of each event of its procedures …}, {'replayed' | 'duplicate', 1 if acknowledged,
--          1 if by this very token, the replies if kept}, {'expired'}, {'fenced'}, {'conflict', index of the guard},
--          {'full', what}, {'failed', index of the command (an event: negative), error}, {'aborted', index of the procedure,
--          reason}, {'refused', the server's error}, {'broken', what was left}; or {'identity', the one found} alone
--          for the whole batch; or the server's error READONLY.
-- Bound:   linear in the arguments, which the client caps; for procedures BUDGET calls each. What few transactions need
--          is made when one does, by undos() and rare() (see internal/script/compose.go).
-- Redis:   6.0

local BROKEN = KEYS[6]

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
local fresh, kept_mark = not start, false -- the shard's first transaction; a mark that stays
local first_to_come -- the reply of the first transaction with new events that nobody has yet

-- For 3, and the acknowledgement: the input of a transaction, a stream as one consumer of a group reads it.
local function input_of(p) return ARGV[p + 5] .. '\0' .. ARGV[p + 6] .. '\0' .. ARGV[p + 7] end

local pending = {} -- entries of this batch, and their neighbours, that are pending for the consumer; by input

-- 3. The entry is still pending for this consumer: nobody claimed it while the handler ran. In a batch one look shows most
-- of an input's entries; the look has a COUNT, and one that it cut off, or that is gone, is looked at by itself.
local function owned(p)
  local stream, group, consumer, entry = ARGV[p + 5], ARGV[p + 6], ARGV[p + 7], ARGV[p + 8]
  if count > 1 then
    local input = input_of(p)
    local seen = pending[input]
    if not seen then
      seen = {}
      local found = redis.pcall('XPENDING', stream, group, entry, '+', count, consumer)
      for i = 1, #found do seen[found[i][1]] = true end
      pending[input] = seen
    end
    if seen[entry] then return true end
  end
  local found = redis.pcall('XPENDING', stream, group, entry, entry, 1, consumer)
  return #found > 0 -- an error, such as NOGROUP, means that nobody owns it any more
end

local step = 0 -- the command that runs now, from 1; an event: negative

-- 7, 8. Events and commands, from argument q on. Raises what fails, and step says where.
local function run(p, q, reply)
  local events, commands = tonumber(ARGV[p + 10]), tonumber(ARGV[p + 11])
  local score = ARGV[p + 9] == '0' and NOW or string.format('%.0f', now + tonumber(ARGV[p + 9]))
  local emitted
  for i = 1, events do
    step = -i
    local ok, full = enqueue(ARGV[q], ARGV[q + 1], ARGV[q + 2], score)
    if not ok then error(full and {full = full} or {err = 'the event exists with another body'}) end
    q = q + 3
  end
  for i = 1, commands do
    step = i
    local head = ARGV[q]
    local first, last = q + 1, q + (tonumber(string.sub(head, 3)) or tonumber(string.match(head, '^%d+', 3)))
    local r
    if string.byte(head) == 112 then -- p
      emitted = emitted or rare().emitter(ARGV[p + 1], score)
      r = rare().call_procedure(first, last, emitted.emit)
      if emitted.failed then error(emitted.failed, 0) end -- though the procedure may have gone on
      if r == nil then r = false end
    else
      if i < commands then -- the last one needs no undo: it works or changes nothing
        local why, ahead = remember(head, ARGV, first, last)
        if why then
          step = i + (ahead or 0)
          error({err = why})
        end
      end
      r = redis.pcall(unpack(ARGV, first, last))
      if added then added[3], added = r, nil end -- the id that its undo lacks
      if type(r) == 'number' and (r >= 9007199254740992 or r <= -9007199254740992) then r = rare().exact(r, first) end
    end
    if type(r) == 'table' and r.err then error(r) end
    reply[i + 2] = r
    q = last + 1
  end
  for i, v in ipairs(emitted or {}) do reply[commands + 2 + i] = v end
end

-- 1. The answer to an id that has been seen.
local function known(seen, p)
  local digest, token = ARGV[p + 1], ARGV[p + 2]
  local word = verdict(seen, token)
  if word == 'broken' then return {word, redis.call('HGET', BROKEN, digest)} end
  return {word, 0, seen == token and 1 or 0, ARGV[p + 13] == '1' and rare().kept_replies(digest) or 0}
end

-- One transaction, whose arguments begin at p. The order of the steps is the guarantee.
local function commit(p, seen)
  local digest, token = ARGV[p + 1], ARGV[p + 2]

  -- 1. Known? Before too late: the late retry of a committed token must hear that it is in.
  if seen then return known(seen, p) end
  if horizon > now and (redis.call('HEXISTS', A, 't' .. token) == 1 or redis.call('HEXISTS', B, 't' .. token) == 1) then
    return {'expired'}
  end
  -- 2. Too late? The network may deliver a script long after its sender gave up.
  if now > tonumber(ARGV[p + 3]) then return {'expired'} end
  -- 3. Fence.
  if ARGV[p + 4] ~= '0' and not owned(p) then return {'fenced'} end
  -- 4. Guards.
  local q = p + 14
  if ARGV[p + 12] ~= '0' then
    local changed
    changed, q = rare().conflict(q, tonumber(ARGV[p + 12]))
    if changed then return {'conflict', changed} end
  end
  -- 5. Capacity.
  local n = tonumber(ARGV[p + 10])
  if n > 0 and (events + n > CAPACITY or 2 * bytes > OUTBOX_BYTES or parked >= PARKED_CAPACITY) then
    local full = rare().no_room(q, n)
    if full then return {'full', full} end
  end
  -- What cannot be undone is refused before the first write, where the server shows it that early.
  if ARGV[2] ~= '2' then
    local ok, index, why = pcall(rare().rehearse, ARGV, q + 3 * n, tonumber(ARGV[p + 11]))
    if not ok then index, why = 0, rare().error_text(index) end
    if index then return {'failed', index, why} end
  end

  -- 6. Mark: the first write, so that a server that takes none says so with nothing done.
  if not start then
    local r = redis.pcall('HSET', A, 'id', IDENTITY, 'start', NOW)
    if type(r) == 'table' then return {'refused', r.err} end
    start = now
  end
  local marked = redis.pcall('HSETNX', A, digest, token)
  if type(marked) == 'table' then return {'refused', marked.err} end
  if marked == 0 then return known(redis.call('HGET', A, digest), p) end -- twice in this batch

  -- 7, 8. Events and business; all of it under pcall, for a Lua error too would leave the mark behind.
  local reply = {'committed', 0}
  local had_events, had_bytes, had_come, had_again = events, bytes, came, again
  local ok, result = pcall(run, p, q, reply)
  if ok then
    if came > had_come and ARGV[p + 9] == '0' then first_to_come = first_to_come or reply end
    depth, dumped, streams, enqueued, entered, kept_mark = 0, nil, nil, {}, nil, true
    if ARGV[p + 13] == '1' then rare().keep_replies(digest, reply, tonumber(ARGV[p + 11])) end
    return reply
  end

  -- 9. Undo, the mark included; what cannot be undone keeps it, and says so to every redelivery.
  local undoing = rare()
  local left = undoing.withdraw(undoing.rollback())
  events, bytes, came, again = had_events, had_bytes, had_come, had_again
  if not left then left = undoing.restore({'HDEL', A, digest}) end
  if not left then return undoing.failure(result, step) end
  left = 'command ' .. step .. ': ' .. undoing.error_text(result) .. '; not restored: ' .. left
  redis.call('HSET', BROKEN, digest, left)
  redis.call('HSET', A, digest, token .. '!')
  kept_mark = true
  return {'broken', left}
end

local replies = {NOW}
for i = 1, count do
  local reply = commit(at[i], in_a[4 + i] or (in_b and in_b[4 + i]))
  local demoted = reply[1] == 'refused' and string.match(reply[2], 'READONLY[^\r\n]*')
  if demoted then return redis.error_reply(demoted) end -- at an error the client drops the connection, not at data
  replies[i + 1] = reply
end
if fresh and start and not kept_mark then redis.call('UNLINK', A) end -- nothing happened here after all
keep_events()
if first_to_come then -- a sign for relays that look only when told: nothing here is due before what came
  local head = before > 0 and redis.pcall('ZRANGE', PENDING, 0, 0, 'WITHSCORES')
  if not head or (tonumber(head[2]) or 0) >= now then first_to_come[2] = 2 end
end

-- WAIT is about what the connection has written: a batch of duplicates writes, so that it means their first commit.
if DURABLE and start and not kept_mark then redis.pcall('HSET', A, 'start', string.format('%.0f', start)) end

-- The acknowledgements, last and outside the undo: should one fail, the redelivery finds the mark.
local acks = {} -- by input
for i = 1, count do
  local p, word = at[i], replies[i + 1][1]
  if ARGV[p + 4] == '2' and (word == 'committed' or word == 'replayed' or word == 'duplicate') then
    local input = count == 1 or input_of(p)
    local ack = acks[input] or {command = {'XACK', ARGV[p + 5], ARGV[p + 6]}}
    ack.command[#ack.command + 1] = ARGV[p + 8]
    ack[#ack + 1] = replies[i + 1]
    acks[input] = ack
  end
end
for _, ack in pairs(acks) do
  if type(redis.pcall(unpack(ack.command))) == 'number' then
    for _, reply in ipairs(ack) do reply[2] = reply[2] + 1 end
  end
end
return replies
