-- Purpose: runs the guarded reads of a transaction. It returns each reply, and the digest by which the commit detects a change.
-- KEYS:    1  void
--          2- every key that is read
-- ARGV:    1  room      most that the replies may weigh, see _guard.lua
--          then for each read
--          +1 head      order of the reply (see _guard.lua) and number of arguments
--          +2 read      the arguments of the read
-- Reply:   for each read
--          {1, reply, digest, weight}
--          {0, error, digest, weight}    error of the server
--          {2}                           the replies exceed the room; this is the last element
-- Bound:   the cost of the reads. If the server knows the size of a reply beforehand, the script refuses a read that weighs too
--          much. The digest is linear in the weight.
-- Redis:   6.0
--#needs _reply _guard

local replies, arg, room = {}, 2, tonumber(ARGV[1])
while arg <= #ARGV do
  local head = ARGV[arg]
  local last = arg + tonumber(string.sub(head, 2))
  local reply, digest, size = guarded_read(string.sub(head, 1, 1), arg + 1, last, room)
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
  arg, room = last + 1, room - size
end
return replies
