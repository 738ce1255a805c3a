-- Purpose: what a transaction is refused for before its first write, and the words for what failed.
--#needs _inbox _events _undo _rollback _results
--#defines rehearse no_room error_text failure exact known

-- Where the server restores strings alone: returns the index of a command that cannot be undone and why, as far as
-- it shows before the first write. The commands stand from q on, and in the plan.
local function rehearse(q, plan, commands)
  local index, why, ahead
  for i = 1, commands - 1 do -- the last one needs no undo
    local class, digit, high, low = string.byte(plan, 12 + 4 * i, 15 + 4 * i)
    local last = q + high * 256 + low - 1
    why, ahead = remember(class, digit, ARGV, q, last, plan, i)
    if why then
      index = i + (ahead or 0)
      break
    end
    q = last + 1
  end
  forget()
  return index, why
end

-- What has no room for the n events, of so many arguments each, that stand from q on, as far as it shows before the first
-- write; known ones need none.
local function no_room(q, n, width)
  local more, size = 0, 0
  for i = q, q + width * (n - 1), width do
    if redis.pcall('HEXISTS', @ENTRIES, ARGV[i]) == 0 then more, size = more + 1, size + #ARGV[i + width - 1] end
  end
  if more == 0 then return nil end
  return outbox.events + more > @CAPACITY and 'events' or outbox.bytes + size > @OUTBOX_BYTES and 'bytes' or
    outbox.parked >= @PARKED_CAPACITY and 'parked' or
    outbox.parked_bytes >= @PARKED_BYTES and 'parked bytes' or nil
end

-- What went wrong, in words.
local function error_text(e)
  return type(e) == 'table' and (e.err or e.abort and 'aborted: ' .. e.abort or 'the outbox is full: ' .. tostring(e.full)) or tostring(e)
end

-- The answer to a transaction that was undone, because of an error at a step.
local function failure(e, step)
  if type(e) == 'table' and e.full then return {'full', e.full} end
  if type(e) == 'table' and e.abort then return {e.permanent and 'rejected' or 'aborted', step, e.abort} end
  return {'failed', step, error_text(e)}
end

-- The reply of an integer command, exact: Lua's numbers are not from 2^53 on.
local function exact(reply, p)
  local name = string.upper(ARGV[p])
  if string.find(name, '^HINCR') then return redis.call('HGET', ARGV[p + 1], ARGV[p + 2]) end
  if string.find(name, '^INCR') or string.find(name, '^DECR') then return redis.call('GET', ARGV[p + 1]) end
  return reply
end

-- The answer to an id that has been seen.
local function known(seen, digest, token, keep)
  local word = verdict(seen, token)
  if word == 'broken' then
    local left = redis.pcall('HGET', @BROKEN, digest)
    return {word, type(left) == 'string' and left or ''}
  end
  return {word, 0, seen == token and 1 or 0, keep and kept_replies(digest) or 0}
end
