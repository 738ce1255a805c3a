-- Purpose: takes events back that a script has enqueued; see _events.lua, whose locals it uses.

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

-- Takes the transaction's events back. The business does not know these keys: the inverse is known. Where pending has
-- another type nothing came into it.
local function withdraw(left)
  local indexed = type(redis.pcall('ZCARD', PENDING)) == 'number'
  for i = entered and #entered or 0, 1, -1 do left = restore(entered[i], left) end
  for i = #enqueued, 1, -1 do
    if indexed then left = restore({'ZREM', PENDING, enqueued[i]}, left) end
    left = restore({'HDEL', ENTRIES, enqueued[i]}, left)
  end
  enqueued, entered = {}, nil
  return left
end
