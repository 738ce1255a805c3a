-- Purpose: takes back what a transaction has done so far; see _undo.lua, whose locals it uses.

-- Runs one command of an undo. Returns what is left undone so far, nil for nothing.
local function restore(command, left)
  local ok, reply = true, nil
  if not command.lost then ok, reply = pcall(redis.pcall, unpack(command)) end
  local why = command.lost or not ok and tostring(reply) or type(reply) == 'table' and reply.err
  if not why and command.length and redis.call('XLEN', command[2]) < command.length then
    why = 'MAXLEN has trimmed entries'
  end
  if not why then return left end
  return (left and left .. '; ' or '') .. command[1] .. ' ' .. command[2] .. ': ' .. why
end

-- Runs the undo in reverse. Returns nil, or what could not be restored.
local function rollback()
  local left
  for i = depth, 1, -1 do left = restore(undo[i], left) end
  depth, dumped, streams = 0, nil, nil
  return left
end

-- Takes the transaction's events back. The business does not know these keys: the inverse is known.
local function withdraw(left)
  for i = #enqueued, 1, -1 do
    left = restore({'ZREM', PENDING, enqueued[i]}, left)
    left = restore({'HDEL', ENTRIES, enqueued[i]}, left)
  end
  enqueued = {}
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

-- What went wrong, in words.
local function error_text(e)
  return type(e) == 'table' and (e.err or e.abort and 'aborted: ' .. e.abort or 'the outbox is full') or tostring(e)
end

-- The answer to a transaction that was undone, because of an error at a step.
local function failure(e, step)
  if type(e) == 'table' and e.full then return {'full'} end
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
