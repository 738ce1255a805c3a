-- Purpose: reads for a transaction's guards: the reply, and the digest by which the commit tells whether it has changed.
-- KEYS:    1 void, then every key that is read
-- ARGV:    1 what the replies may count (see _guard.lua); then of each read a head (order of the reply, see _guard.lua, and
--          number of arguments) and the command itself
-- Reply:   for each read {1, reply, digest, what it counts} or {0, the server's error, digest, what it counts}; the last is {2}
--          if the replies count more than they may
-- Bound:   that of the reads, of which those whose size the server knows beforehand are refused beyond what they may count;
--          the digest is linear in what they may count
-- Redis:   6.0
--#needs _reply _guard

local replies, q, room = {}, 2, tonumber(ARGV[1])
while q <= #ARGV do
  local head = ARGV[q]
  local last = q + tonumber(string.sub(head, 2))
  local reply, digest, size = guarded_read(string.sub(head, 1, 1), q + 1, last, room)
  if not digest then
    replies[#replies + 1] = {2}
    break
  end
  if type(reply) == 'table' and reply.err then
    replies[#replies + 1] = {0, reply.err, digest, size}
  elseif digest == '' then
    replies[#replies + 1] = {0, 'ERR an integer beyond 2^53 cannot be guarded', digest, size}
  else
    replies[#replies + 1] = {1, reply, digest, size}
  end
  q, room = last + 1, room - size
end
return replies
