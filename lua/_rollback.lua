-- Purpose: takes back what a transaction has done so far; see _undo.lua and _withdraw.lua, whose locals it uses.

-- Runs the undo in reverse. Returns nil, or what could not be restored.
local function rollback()
  local left
  for i = depth, 1, -1 do left = restore(undo[i], left) end
  depth, dumped, streams = 0, nil, nil
  return left
end

-- Where the server restores strings alone: returns the index of a command that cannot be undone and why, as far as
-- it shows before the first write. The commands stand from q on.
local function rehearse(v, q, commands)
  local index, why, ahead
  for i = 1, commands - 1 do -- the last one needs no undo
    local last = q + (tonumber(string.sub(v[q], 3)) or tonumber(string.match(v[q], '^%d+', 3)))
    why, ahead = remember(v[q], v, q + 1, last)
    if why then
      index = i + (ahead or 0)
      break
    end
    q = last + 1
  end
  depth, dumped, streams = 0, nil, nil
  return index, why
end

-- What has no room for the n events that stand from q on, as far as it shows before the first write; known ones need
-- none.
local function no_room(q, n)
  local more, size = 0, 0
  for i = q, q + 3 * (n - 1), 3 do
    if redis.call('HEXISTS', ENTRIES, ARGV[i]) == 0 then more, size = more + 1, size + #ARGV[i + 2] end
  end
  if more == 0 then return nil end
  return events + more > CAPACITY and 'events' or bytes + size > OUTBOX_BYTES and 'bytes' or
    parked >= PARKED_CAPACITY and 'parked' or nil
end

-- What went wrong, in words.
local function error_text(e)
  return type(e) == 'table' and (e.err or e.abort and 'aborted: ' .. e.abort or 'the outbox is full: ' .. tostring(e.full)) or tostring(e)
end

-- The answer to a transaction that was undone, because of an error at a step.
local function failure(e, step)
  if type(e) == 'table' and e.full then return {'full', e.full} end
  if type(e) == 'table' and e.abort then return {'aborted', step, e.abort} end
  return {'failed', step, error_text(e)}
end

-- The reply of an integer command, exact: Lua's numbers are not from 2^53 on.
local function exact(reply, p)
  local name = string.upper(ARGV[p])
  if string.find(name, '^HINCR') then return redis.call('HGET', ARGV[p + 1], ARGV[p + 2]) end
  if string.find(name, '^INCR') or string.find(name, '^DECR') then return redis.call('GET', ARGV[p + 1]) end
  return reply
end
