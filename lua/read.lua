-- Purpose: reads for a transaction's guards: the reply, and the digest by which the commit tells whether it has changed.
-- KEYS:    1 void, then every key that is read
-- ARGV:    of each read a head (order of the reply, see _reply.lua, and number of arguments) and the command itself
-- Reply:   for each read {1, reply, digest} or {0, the server's error, digest}
-- Bound:   that of the reads
-- Redis:   6.0

local replies, q = {}, 1
while q <= #ARGV do
  local head = ARGV[q]
  local last = q + tonumber(string.sub(head, 2))
  local reply = redis.pcall(unpack(ARGV, q + 1, last))
  local digest = digest_of(string.sub(head, 1, 1), reply)
  if type(reply) == 'table' and reply.err then
    replies[#replies + 1] = {0, reply.err, digest}
  elseif digest == '' then
    replies[#replies + 1] = {0, 'ERR an integer beyond 2^53 cannot be guarded', digest}
  else
    replies[#replies + 1] = {1, reply, digest}
  end
  q = last + 1
end
return replies
