-- Purpose: reports the outcome of an id or of a position, or of the token of a commit whose reply was lost. On request it writes a tombstone. A
--          copy of the commit that arrives later finds the tombstone and changes nothing.
-- KEYS:    1  void
--          2  inbox:a
--          3  inbox:b
--          4  broken
--          5  positions
-- ARGV:    1  digest        of the id, or the field of the position
--          2  token         empty: any
--          3  until         when the tombstone is no longer needed, ms; empty: write none
--          4  offset        of the position; empty: there is an id
--          5  epoch         of the position
-- Reply:   time (server time, ms), then
--          'replayed'   ''  committed under the base of the token
--          'duplicate'  ''  committed under another base
--          'broken'     the commands that were not undone
--          'tombstoned' ''
--          'absent'     ''
--          'identity'   the identity found
-- Bound:   constant
-- Redis:   6.0
--#needs _time _inbox

local in_a, in_b, start, horizon = open_inbox(now, 1, 1)
if not in_a then return {NOW, 'identity', in_b} end

local seen
if ARGV[4] == '' then
  seen = redis.call('HGET', @INBOX_A, ARGV[1]) or in_b and in_b[2]
else
  local position = redis.call('HGET', @POSITIONS, ARGV[1])
  local stored, mark, epoch = string.match(position or '', '^(%d*)([ !])%d+ (.*)$', 11)
  if mark == '!' then
    seen = position
  elseif epoch == ARGV[5] and ARGV[4] <= stored then -- a later commit has replaced the token
    seen = ARGV[4] == stored and string.sub(position, 1, 10) or ''
  end
end
if seen then
  local word = verdict(seen, ARGV[2])
  return {NOW, word, word == 'broken' and redis.call('HGET', @BROKEN, ARGV[1]) or ''}
end
if ARGV[3] == '' then return {NOW, 'absent', ''} end

horizon = math.max(horizon, tonumber(ARGV[3]))
redis.call('HSET', @INBOX_A, 't' .. ARGV[2], '1', 'id', meta_of(start or now, in_b, horizon))
return {NOW, 'tombstoned', ''}
