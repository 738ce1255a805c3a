-- Purpose: finds the reasons to refuse a transaction before its first write, and formats the errors of a failed one.
--#needs _inbox _events _undo _rollback _results large()
--#defines rehearse no_room error_text failure exact known

-- For a server that restores strings only: returns the index of a command that cannot be undone and the reason, if that can be
-- found before the first write. The commands begin at ARGV[arg].
local function rehearse(arg, plan, commands)
  local index, why, ahead
  for i = 1, commands - 1 do -- the last one needs no undo
    local class, digit, high, low = string.byte(plan, 12 + 4 * i, 15 + 4 * i)
    local last = arg + high * 256 + low - 1
    why, ahead = remember(class, digit, ARGV, arg, last, plan, i)
    if why then
      index = i + (ahead or 0)
      break
    end
    arg = last + 1
  end
  forget()
  return index, why
end

-- Returns the bound that leaves no room for the events, or nil if none is found before the first write. They begin at ARGV[arg]
-- and have width arguments each. Events that the outbox has already need no room.
local function no_room(arg, events, width)
  local more, size = 0, 0
  for i = arg, arg + width * (events - 1), width do
    if redis.pcall('HEXISTS', @ENTRIES, ARGV[i]) == 0 then more, size = more + 1, size + large().size_of(ARGV[i + width - 1]) end
  end
  if more == 0 then return nil end
  return not has_room(more) and 'events' or outbox.bytes + size > @OUTBOX_BYTES and 'bytes' or
    outbox.parked >= @PARKED_CAPACITY and 'parked' or
    outbox.parked_bytes >= @PARKED_BYTES and 'parked bytes' or nil
end

-- Returns the text of an error.
local function error_text(raised)
  return type(raised) == 'table' and (raised.err or raised.abort and 'aborted: ' .. raised.abort or
    'the outbox is full: ' .. tostring(raised.full)) or tostring(raised)
end

-- Returns the result of a transaction that was undone because of an error at a step.
local function failure(raised, step)
  if type(raised) == 'table' and raised.full then return {'full', raised.full} end
  if type(raised) == 'table' and raised.abort then return {raised.permanent and 'rejected' or 'aborted', step, raised.abort} end
  return {'failed', step, error_text(raised)}
end

-- Returns the exact reply of an integer command at ARGV[arg]. Lua's numbers are not exact from 2^53 on. The command has run, and
-- the last one has no undo, so a user without the right to read the value gets the inexact reply, and no error.
local function exact(reply, arg)
  local name, text = string.upper(ARGV[arg]), nil
  if string.find(name, '^HINCR') then
    text = redis.pcall('HGET', ARGV[arg + 1], ARGV[arg + 2])
  elseif string.find(name, '^INCR') or string.find(name, '^DECR') then
    text = redis.pcall('GET', ARGV[arg + 1])
  end
  return type(text) == 'string' and text or reply
end

-- Returns the result for an id that is in the inbox.
local function known(seen, digest, token, keep)
  local word = verdict(seen, token)
  if word == 'broken' then
    local left = redis.pcall('HGET', @BROKEN, digest)
    return {word, type(left) == 'string' and left or ''}
  end
  return {word, 0, seen == token and 1 or 0, keep and kept_replies(digest) or 0}
end
