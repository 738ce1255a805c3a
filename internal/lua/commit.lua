-- Purpose: commits a batch of transactions of one slot: inbox mark, events, business commands and the
--          acknowledgement of the input, each transaction whole or not at all.
-- KEYS:    1 void (never exists: while a slot migrates, a missing declared key makes the cluster answer
--          TRYAGAIN before anything runs), 2 inbox:a, 3 inbox:b, 4 entries, 5 pending, 6 broken, 7 counts; then results and
--          results:b where replies are kept, headers, lanes, seq and attempts where events may be ordered or scheduled,
--          the input stream and every key of the batch, used by name.
-- ARGV:    1 number of transactions; 2 stream, 3 group and 4 consumer of the input; the digest of each transaction. Then
--          for each transaction: its plan; its token; its deadline (ms); its entry, if the plan fences it; for each guard a
--          head (order of the reply, see _guard.lua, and number of arguments), the digest and the read; for each event its
--          id, its head if the plan says so (see _events.lua) and its body; the commands. A command of class p is a
--          procedure: name, number of keys, keys, arguments.
--          A plan is a string of big-endian numbers: 3 bytes number of arguments of the transaction, 1 input (0 none,
--          1 fence, 2 fence and XACK), 4 delay of its events (ms), 2 number of guards, 2 number of events, 1 flags (1: keep
--          the replies, 2: events have heads, 4: the server restores only strings), 2 number of commands; then for each
--          command its undo class and digit (see _undo.lua) and 2 bytes number of arguments.
-- Reply:   server time (ms); then for each transaction the number of elements of its answer, and the answer:
--          'committed', 1 if acknowledged plus 2 if it added the only due events, the reply of each command, then id, head
--          and body of each event that its procedures added;
--          'replayed' or 'duplicate', 1 if acknowledged, 1 if the mark has the same token, the kept replies;
--          'expired'; 'fenced'; 'conflict' and the guard's index; 'full' and the bound;
--          'failed', the command's index (negative for an event), the error;
--          'aborted' or 'rejected', the procedure's index, the reason;
--          'refused' and the server's error; 'broken' and the commands that were not undone.
--          The whole batch may return 'identity' and the identity found, or the server's error READONLY.
-- Bound:   linear in the arguments, which the client caps; for guarded reads GUARD_BYTES, and what the reads cost whose
--          size the server does not know beforehand; for procedures BUDGET calls each. What few transactions need
--          is made when one does, by the lazy functions undos(), rare() and guarding().
-- Redis:   6.0
--#needs _time _inbox _events _undo
--#lazy undos(too_large unread push_expiry push_whole push_other excuse) _undo_rare
--#lazy rare(restore rollback rehearse no_room error_text failure exact known keep_replies emitter call_procedure) _rollback _reply _results _refusal _emit _procedure
--#lazy guarding(conflict) _reply _guard
--#lazy lanes(crowded enter) _outbox _lanes _enter

-- One look at the inbox for all of them.
local count = tonumber(ARGV[1])
local in_a, in_b, start, horizon = open_inbox(now, {'HMGET', @INBOX_A, 'id', 'start', 'b', 'tomb', unpack(ARGV, 5, 4 + count)})
if not in_a then return {NOW, 2, 'identity', in_b} end

-- 7, 8. Events and commands, from argument q on; undo.step is the command that runs, from 1, or an event, negative.
-- Raises what fails. The replies come into out, behind n; returns the last one's place.
local function run(q, plan, events, width, commands, score, digest, out, n)
  for i = 1, events do
    undo.step = -i
    local ok, full = enqueue(ARGV[q], width == 3 and ARGV[q + 1] or '', ARGV[q + width - 1], score)
    if not ok then error(full and {full = full} or {err = 'the event exists with another body'}) end
    q = q + width
  end
  local emitted
  for i = 1, commands do
    undo.step = i
    local class, digit, high, low = string.byte(plan, 12 + 4 * i, 15 + 4 * i)
    local last, r = q + high * 256 + low - 1, nil
    if class == @PROCEDURE then
      emitted = emitted or rare().emitter(digest, score)
      r = rare().call_procedure(q, last, emitted.emit)
      if emitted.failed then error(emitted.failed, 0) end -- though the procedure may have gone on
      if r == nil then r = false end
    else
      if i < commands then -- the last one needs no undo: it works or changes nothing
        local why, ahead = remember(class, digit, ARGV, q, last, plan, i)
        if why then
          undo.step = i + (ahead or 0)
          error({err = why})
        end
      end
      if class == @POSITIONS then q = q + 1 end
      r = redis.pcall(unpack(ARGV, q, last))
      if undo.added then undo.added[3], undo.added = r, nil end -- the id that its undo lacks
    end
    local kind = type(r)
    if kind == 'table' then
      if r.err then error(r) end
    elseif kind == 'number' and (r >= @TWO_53 or r <= -@TWO_53) and class ~= @PROCEDURE then
      r = rare().exact(r, q)
    end
    out[n + i] = r
    q = last + 1
  end
  n = n + commands
  for i = 1, emitted and #emitted or 0 do out[n + i] = emitted[i] end
  return n + (emitted and #emitted or 0)
end

local out, size = {NOW, nil, nil, nil, nil, nil, nil, nil}, 1 -- the reply, and its size
local ack, acked = {'XACK', ARGV[2], ARGV[3], nil}, {nil, nil} -- of entries; and where that they were is to be said
local fresh, kept_mark = not start, false -- the shard's first transaction; a mark that stays
local pending -- which entries of this batch, and their neighbours, are pending for the consumer
local score, delayed = NOW, 0
local woken -- where to say that there are new events that nobody has yet
local p = 5 + count

-- The order of the steps is the guarantee.
for i = 1, count do
  local digest, plan, token = ARGV[4 + i], ARGV[p], ARGV[p + 1]
  local s2, s1, s0, input, d3, d2, d1, d0, g1, g0, e1, e0, flags, c1, c0 = string.byte(plan, 1, 15)
  local guards, events, commands = g1 * 256 + g0, e1 * 256 + e0, c1 * 256 + c0
  local width, delay, q = flags % 4 >= 2 and 3 or 2, d3 * 16777216 + d2 * 65536 + d1 * 256 + d0, p + 3
  local seen, keep, reply = in_a[4 + i] or in_b and in_b[4 + i], flags % 2 == 1, nil
  repeat -- once: break is the end of the transaction
    -- 1. Known? Before too late: the late retry of a committed token must hear that it is in.
    if seen then
      reply = rare().known(seen, digest, token, keep)
      break
    end
    -- 2. Too late? The network may deliver a script long after its sender gave up. Both times have 13 digits.
    if NOW > ARGV[p + 2] or horizon > now and
      (redis.call('HEXISTS', @INBOX_A, 't' .. token) == 1 or redis.call('HEXISTS', @INBOX_B, 't' .. token) == 1) then
      reply = {'expired'}
      break
    end
    -- 3. Fence: the entry is still pending for this consumer, nobody claimed it while the handler ran. In a batch one look
    -- shows most of the entries; the look has a COUNT, and one that it cut off, or that is gone, is looked at by itself.
    if input > 0 then
      local entry = ARGV[q]
      q = q + 1
      if count > 1 and not pending then
        pending = {}
        local found = redis.pcall('XPENDING', ARGV[2], ARGV[3], entry, '+', count, ARGV[4])
        for n = 1, #found do pending[found[n][1]] = true end
      end
      -- An error, such as NOGROUP, means that nobody owns it any more.
      if not (pending and pending[entry]) and #redis.pcall('XPENDING', ARGV[2], ARGV[3], entry, entry, '1', ARGV[4]) == 0 then
        reply = {'fenced'}
        break
      end
    end
    -- 4. Guards.
    if guards > 0 then
      local changed
      changed, q = guarding().conflict(q, guards)
      if changed then
        reply = {'conflict', changed}
        break
      end
    end
    -- 5. Capacity.
    local o = outbox
    if events > 0 then
      local ok, why = o.events, nil
      if not ok then ok, why = pcall(open_outbox) end -- a neighbour may have committed: nothing may end the script
      if not ok then
        reply = {'failed', 0, rare().error_text(why)}
        break
      end
      if o.events + events > @CAPACITY or 2 * o.bytes > @OUTBOX_BYTES or o.parked >= @PARKED_CAPACITY or
        o.parked_bytes >= @PARKED_BYTES then
        local full = rare().no_room(q, events, width)
        if full then
          reply = {'full', full}
          break
        end
      end
    end
    -- What cannot be undone is refused before the first write, where the server shows it that early.
    if flags >= 4 then
      undo.strings = true
      local ok, index, why = pcall(rare().rehearse, q + width * events, plan, commands)
      if not ok then index, why = 0, rare().error_text(index) end
      if index then
        reply = {'failed', index, why}
        break
      end
    end

    -- 6. Mark: the first write, so that a server that takes none says so with nothing done.
    if not start then
      local r = redis.pcall('HSET', @INBOX_A, 'id', @IDENTITY, 'start', NOW)
      if type(r) == 'table' then
        reply = {'refused', r.err}
        break
      end
      start = now
    end
    local marked = redis.pcall('HSETNX', @INBOX_A, digest, token)
    if marked == 0 then -- twice in this batch
      reply = rare().known(redis.call('HGET', @INBOX_A, digest), digest, token, keep)
      break
    elseif marked ~= 1 then
      reply = {'refused', marked.err}
      break
    end

    -- 7, 8. Events and business; all of it under pcall, for a Lua error too would leave the mark behind.
    if delay ~= delayed then score, delayed = string.format('%d', now + delay), delay end
    local had_events, had_bytes, had_come, had_again = o.events, o.bytes, o.came, o.again
    local ok, result = pcall(run, q, plan, events, width, commands, score, digest, out, size + 3)
    if ok then
      out[size + 1], out[size + 2], out[size + 3] = result - size - 1, 'committed', 0
      if not woken and delay == 0 and o.came > had_come then woken = size + 3 end
      if input == 2 then ack[#ack + 1], acked[#acked + 1] = ARGV[p + 3], size + 3 end
      for n = #undo, 1, -1 do undo[n] = nil end
      undo.dumped, undo.streams = nil, nil
      if keep then rare().keep_replies(digest, out, size + 3, commands) end
      size, kept_mark = result, true
      break
    end

    -- 9. Undo, the mark included; what cannot be undone keeps it, and says so to every redelivery.
    local undoing = rare()
    local step = undo.step
    local left = undoing.rollback()
    for n = size + 4, size + 3 + commands do out[n] = nil end
    o.events, o.bytes, o.came, o.again = had_events, had_bytes, had_come, had_again
    if not left then left = undoing.restore({'HDEL', @INBOX_A, digest}) end
    if not left then
      reply = undoing.failure(result, step)
      break
    end
    left = 'command ' .. step .. ': ' .. undoing.error_text(result) .. '; not restored: ' .. left
    redis.call('HSET', @BROKEN, digest, left)
    redis.call('HSET', @INBOX_A, digest, token .. '!')
    reply, kept_mark = {'broken', left}, true
  until true

  if reply then -- of any other outcome
    local word, n = reply[1], #reply
    local demoted = word == 'refused' and string.match(reply[2], 'READONLY[^\r\n]*')
    if demoted then return redis.error_reply(demoted) end -- at an error the client drops the connection, not at data
    out[size + 1] = n
    for j = 1, n do out[size + 1 + j] = reply[j] end
    if input == 2 and (word == 'replayed' or word == 'duplicate') then
      ack[#ack + 1], acked[#acked + 1] = ARGV[p + 3], size + 3
    end
    size = size + 1 + n
  end
  p = p + s2 * 65536 + s1 * 256 + s0
end

if fresh and start and not kept_mark then redis.call('UNLINK', @INBOX_A) end -- nothing happened here after all
keep_events()
if woken then -- a sign for relays that look only when told: nothing here is due before what came
  local due = outbox.events > outbox.came and redis.pcall('ZCOUNT', @PENDING, '-inf', '(' .. NOW) or 0
  if due == 0 then out[woken] = 2 end
end

-- WAIT is about what the connection has written: a batch of duplicates writes, so that it means their first commit.
if @DURABLE and start and not kept_mark then redis.pcall('HSET', @INBOX_A, 'start', string.format('%d', start)) end

-- The acknowledgement, last and outside the undo: should it fail, the redelivery finds the mark.
if ack[4] and type(redis.pcall(unpack(ack))) == 'number' then
  for _, n in ipairs(acked) do out[n] = out[n] + 1 end
end
return out
