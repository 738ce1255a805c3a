-- Purpose: commits a batch of transactions of one slot. A transaction consists of an inbox mark or a position, events, business
--          commands and the acknowledgement of the input. Each one is applied as a whole or not at all.
-- KEYS:    1     void         never exists: while a slot migrates, a missing declared key makes the cluster return TRYAGAIN
--                             before the script runs
--          2     inbox:a
--          3     inbox:b
--          4     entries
--          5     pending
--          6     broken
--          7     counts
--          8     input        the input stream
--          9     taken        notes of takeovers, see _taken.lua; 8 and 9 only if there is an input
--          then the keys that the script uses by name
--                results, results:b              if replies are kept
--                headers, lanes, seq, attempts   if events may be ordered or scheduled
--                positions                       if a transaction has a position
--                every key of the batch
-- ARGV:    1     count        number of transactions
--          2     group        of the input
--          3     consumer     of the input
--          4-    digest       one for each transaction
--          then for each transaction
--                plan         see Plan
--                token
--                deadline     ms
--                entry        of the input; only if the plan fences it
--                field, offset, after, owner
--                             only if the plan says that it has a position, see _position.lua. After is the offset that must be
--                             committed, or empty. Owner is a space, the owner's generation, a space and the epoch
--                for each guard
--                  head       order of the reply (see _guard.lua) and number of arguments of the read
--                  digest     of the reply that the transaction has seen
--                  read       the arguments of the read
--                for each event
--                  id
--                  head       see _events.lua; only if the plan says that events have heads
--                  body
--                for each command, by its undo class
--                  p          a procedure: name, number of keys, keys, arguments
--                  m          positions of its keys, then the command
--                  others     the command
-- Plan:    a string of big-endian numbers, by byte
--          1-3   arguments    number of arguments of the transaction, with the plan
--          4     input        sum of 1: fence, 2: XACK, 4: ask XPENDING in any case
--          5-8   delay        of the events, ms
--          9-10  guards       number of guards
--          11-12 events       number of events
--          13    flags        sum of 1: keep the replies, 2: events have heads, 4: the server restores only strings,
--                              8: a position instead of an inbox mark
--          14-15 commands     number of commands
--          then for each command
--          +1    class        undo class, see _undo.lua
--          +2    digit        digit of the class
--          +3-4  arguments    number of arguments
-- Reply:   1     time         server time, ms
--          then for each transaction the number of elements of its result, and the result
--          'committed'        flags (sum of 1: acknowledged, 2: it added the only due events), the reply of each command,
--                             then id, head and body of each event that its procedures added
--          'replayed'         1 if acknowledged, 1 if the mark has the same token, the kept replies
--          'duplicate'        the same elements as 'replayed'
--          'expired'
--          'fenced'
--          'early'            the offset that is committed
--          'epoch'            the epoch that is stored
--          'conflict'         index of the guard
--          'full'             name of the bound
--          'failed'           index of the command (negative for an event, 0 for neither), error
--          'aborted'          index of the procedure, reason
--          'rejected'         index of the procedure, reason
--          'refused'          error of the server
--          'broken'           the commands that were not undone
--          or for the whole batch
--                             time, 2, 'identity', the identity found
--                             the server's error READONLY
-- Bound:   linear in the arguments, which the client caps. Guarded reads are bound by GUARD_BYTES, and by the cost of those reads
--          whose size the server does not know beforehand. Each procedure may make BUDGET calls. The lazy functions undos(),
--          rare() and guarding() define rarely used functions only when a transaction needs them.
-- Redis:   6.0
--#needs _time _inbox _events _undo
--#lazy large(size_of digest_of is_there adopt_body) _body _large
--#lazy undos(too_large unread push_expiry push_whole push_other excuse) _undo_rare
--#lazy rare(restore rollback rehearse no_room error_text failure exact known keep_replies emitter call_procedure) _rollback _reply _results _refusal _emit _procedure
--#lazy guarding(conflict) _reply _guard
--#lazy lanes(crowded enter) _outbox _lanes _enter
--#lazy positions(place_at) _position

-- One look at the inbox for all of them.
local count = tonumber(ARGV[1])
local in_a, in_b, start, horizon = open_inbox(now, 4, 3 + count)
if not in_a then return {NOW, 2, 'identity', in_b} end

-- 7, 8. Applies the events and commands that begin at ARGV[arg]. undo.step is the index of the running command, or the negative
-- one of an event. Raises an error if one fails. Writes the replies into out, behind place, and returns the place of the last one.
local function run(arg, plan, events, width, commands, score, digest, out, place)
  for i = 1, events do
    undo.step = -i
    local ok, full = enqueue(ARGV[arg], width == 3 and ARGV[arg + 1] or '', ARGV[arg + width - 1], score)
    if not ok then error(full and {full = full} or {err = 'the event exists with another body'}) end
    arg = arg + width
  end
  local emitted
  for i = 1, commands do
    undo.step = i
    local class, digit, high, low = string.byte(plan, 12 + 4 * i, 15 + 4 * i)
    local last, reply = arg + high * 256 + low - 1, nil
    if class == @PROCEDURE then
      emitted = emitted or rare().emitter(digest, score)
      reply = rare().call_procedure(arg, last, emitted.emit)
      if emitted.failed then error(emitted.failed, 0) end -- the procedure may have caught the error
      if reply == nil then reply = false end
    else
      if i < commands then -- the last one needs no undo: if it fails, it changes nothing
        local why, ahead = remember(class, digit, ARGV, arg, last, plan, i)
        if why then
          undo.step = i + (ahead or 0)
          error({err = why})
        end
      end
      if class == @KEYS_AT then arg = arg + 1 end
      reply = redis.pcall(unpack(ARGV, arg, last))
      if undo.added then -- its undo lacks the id; if it failed, there is no entry to delete
        if type(reply) == 'string' then undo.added[3] = reply end
        undo.added = nil
      end
    end
    local kind = type(reply)
    if kind == 'table' then
      if reply.err then error(reply) end
    elseif kind == 'number' and (reply >= @TWO_53 or reply <= -@TWO_53) and class ~= @PROCEDURE then
      reply = rare().exact(reply, arg)
    end
    out[place + i] = reply
    arg = last + 1
  end
  place = place + commands
  for i = 1, emitted and #emitted or 0 do out[place + i] = emitted[i] end
  return place + (emitted and #emitted or 0)
end

local out, size = {NOW, nil, nil, nil, nil, nil, nil, nil}, 1 -- the reply, and its length
local ack, acked = {'XACK', KEYS[8], ARGV[2], nil}, {nil, nil} -- of entries; and where out notes that they are acknowledged
local fresh, kept_mark = not start, false -- the shard had no transaction before; this script leaves a mark
local taken -- the note of a takeover from the consumer; nil: not read yet
local pending -- entries of this batch, and their neighbors, that are pending for the consumer
local score, delayed = NOW, 0
local woken -- where out notes that the events added here are the only due ones
local tx_start = 4 + count

-- The guarantee depends on the order of the steps.
for i = 1, count do
  local digest, plan, token = ARGV[3 + i], ARGV[tx_start], ARGV[tx_start + 1]
  local args2, args1, args0, input, delay3, delay2, delay1, delay0, guards1, guards0, events1, events0, flags,
    commands1, commands0 = string.byte(plan, 1, 15) -- the bytes of its numbers, highest first
  local guards, events, commands = guards1 * 256 + guards0, events1 * 256 + events0, commands1 * 256 + commands0
  local width, delay, arg = flags % 4 >= 2 and 3 or 2, delay3 * 16777216 + delay2 * 65536 + delay1 * 256 + delay0, tx_start + 3
  local seen, keep, reply, place = in_a[1 + i] or in_b and in_b[1 + i], flags % 2 == 1, nil, nil
  repeat -- once: break ends the transaction
    -- 1. Duplicate? This comes before the deadline, because a late retry must learn that its token was committed.
    if flags >= 8 then -- it has a position, and no mark
      place, reply = positions().place_at(input > 0 and arg + 1 or arg, token)
      flags, seen = flags - 8, nil
      if reply then break end
    elseif seen then
      reply = rare().known(seen, digest, token, keep)
      break
    end
    -- 2. Expired? The network may deliver a script long after its sender gave up. Both times have 13 digits.
    if NOW > ARGV[tx_start + 2] or horizon > now and
      (redis.call('HEXISTS', @INBOX_A, 't' .. token) == 1 or redis.call('HEXISTS', @INBOX_B, 't' .. token) == 1) then
      reply = {'expired'}
      break
    end
    -- 3. Fence: the entry must still be pending for this consumer, because another one may have claimed it while the handler
    -- ran. The scripts that claim leave a note; without one the entry still has its owner, and XPENDING is not asked. A position
    -- must not pass the last id of its stream, so it asks in any case: a failover may have lost the entry without a note.
    if input > 0 then
      local entry = ARGV[arg]
      arg = arg + 1
      local strict = input >= 4 or place
      if not strict and taken == nil then taken = redis.pcall('EXISTS', KEYS[9]) ~= 0 and redis.pcall('HGET', KEYS[9], ARGV[2] .. '\0' .. ARGV[3]) end
      local ask = strict or taken -- an error of the note, such as a wrong type, is a note
      -- In a batch one XPENDING finds most of the entries. An entry beyond its COUNT gets an XPENDING of its own.
      if ask and count > 1 and not pending then
        pending = {}
        local found = redis.pcall('XPENDING', KEYS[8], ARGV[2], entry, '+', count, ARGV[3])
        for j = 1, #found do pending[found[j][1]] = true end
      end
      -- An error, such as NOGROUP, means that the entry has no owner any more.
      if ask and not (pending and pending[entry]) and #redis.pcall('XPENDING', KEYS[8], ARGV[2], entry, entry, '1', ARGV[3]) == 0 then
        reply = {'fenced'}
        break
      end
    end
    if place then arg = arg + 4 end
    -- 4. Guards.
    if guards > 0 then
      local changed
      changed, arg = guarding().conflict(arg, guards)
      if changed then
        reply = {'conflict', changed}
        break
      end
    end
    -- 5. Capacity.
    local o = outbox
    if events > 0 then
      local ok, why = o.events, nil
      if not ok then ok, why = pcall(open_outbox) end -- another transaction may have committed, so no error may end the script
      if not ok then
        reply = {'failed', 0, rare().error_text(why)}
        break
      end
      if o.events + events > @CAPACITY and not has_room(events) or 2 * o.bytes > @OUTBOX_BYTES or o.parked >= @PARKED_CAPACITY or
        o.parked_bytes >= @PARKED_BYTES then
        local full = rare().no_room(arg, events, width)
        if full then
          reply = {'full', full}
          break
        end
      end
    end
    -- A command that cannot be undone is refused before the first write, if that can be found so early.
    if flags >= 4 then
      undo.strings = true
      local ok, index, why = pcall(rare().rehearse, arg + width * events, plan, commands)
      if not ok then index, why = 0, rare().error_text(index) end
      if index then
        reply = {'failed', index, why}
        break
      end
    end

    -- 6. Mark. It is the first write, so if the server rejects writes, nothing has been done.
    if not start then
      local written = redis.pcall('HSET', @INBOX_A, 'id', meta_of(now, in_b, horizon))
      if type(written) == 'table' then
        reply = {'refused', written.err}
        break
      end
      start = now
    end
    local marked = place and place.move() or redis.pcall('HSETNX', @INBOX_A, digest, token)
    if marked == 0 then -- A has the id; in a batch, because it occurs twice
      seen = redis.call('HGET', @INBOX_A, digest)
      reply = rare().known(seen, digest, token, keep)
      break
    elseif marked ~= 1 then
      reply = {'refused', marked.err}
      break
    end

    -- 7, 8. Events and business commands. They run under pcall, because a Lua error would leave the mark behind, too.
    if delay ~= delayed then score, delayed = string.format('%d', now + delay), delay end
    local had_bytes, had_come, had_again = o.bytes, o.came, o.again
    local ok, result = pcall(run, arg, plan, events, width, commands, score, digest, out, size + 3)
    if ok then
      out[size + 1], out[size + 2], out[size + 3] = result - size - 1, 'committed', 0
      if not woken and delay == 0 and o.came > had_come then woken = size + 3 end
      if input % 4 == 3 then ack[#ack + 1], acked[#acked + 1] = ARGV[tx_start + 3], size + 3 end
      for j = #undo, 1, -1 do undo[j] = nil end
      undo.dumped, undo.streams = nil, nil
      if keep then rare().keep_replies(digest, out, size + 3, commands) end
      size, kept_mark = result, true
      break
    end

    -- 9. Undo, with the mark. After a rollback failure the mark stays, and every redelivery gets the failure.
    local undoing = rare()
    local step = undo.step
    local left = undoing.rollback()
    for j = size + 4, size + 3 + commands do out[j] = nil end
    o.events = o.events and o.events - (o.came - had_come)
    o.bytes, o.came, o.again = had_bytes, had_come, had_again
    if not left then left = undoing.restore(place and place.undo or {'HDEL', @INBOX_A, digest}) end
    if not left then
      reply = undoing.failure(result, step)
      break
    end
    left = 'command ' .. step .. ': ' .. undoing.error_text(result) .. '; not restored: ' .. left
    redis.call('HSET', @BROKEN, place and place.field or digest, left)
    if place then place.note_broken() else redis.call('HSET', @INBOX_A, digest, token .. '!') end
    reply, kept_mark = {'broken', left}, true
  until true

  -- 1 again: open_inbox has not looked up a single id in A.
  if reply and count == 1 and not seen and not place then
    seen = redis.call('HGET', @INBOX_A, digest)
    if seen then reply = rare().known(seen, digest, token, keep) end
  end
  if reply then -- of every outcome but a commit
    local word, length = reply[1], #reply
    local demoted = word == 'refused' and string.match(reply[2], 'READONLY[^\r\n]*')
    if demoted then return redis.error_reply(demoted) end -- the client drops the connection at an error, but not at data
    out[size + 1] = length
    for j = 1, length do out[size + 1 + j] = reply[j] end
    if input % 4 == 3 and (word == 'replayed' or word == 'duplicate') then
      ack[#ack + 1], acked[#acked + 1] = ARGV[tx_start + 3], size + 3
    end
    size = size + 1 + length
  end
  tx_start = tx_start + args2 * 65536 + args1 * 256 + args0
end

if fresh and start and not kept_mark then redis.call('UNLINK', @INBOX_A) end -- no transaction has left a mark
if keep_events(woken) and woken then out[woken] = 2 end

-- WAIT waits for the writes of the connection. A batch of duplicates writes here, so that WAIT covers their first commit.
if @DURABLE and start and not kept_mark then redis.pcall('HSET', @INBOX_A, 'id', meta_of(start, in_b, horizon)) end

-- The acknowledgement is last and has no undo: if it fails, the redelivery finds the mark.
if ack[4] and type(redis.pcall(unpack(ack))) == 'number' then
  for _, n in ipairs(acked) do out[n] = out[n] + 1 end
end
return out
