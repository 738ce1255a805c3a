-- Purpose: the inbox of a shard: two generations of a hash digest -> token. All scripts that look up an id use it.
--
-- Beside the digests (16 bytes) a generation holds these fields:
--   id        see _meta.lua
--   t<token>  a tombstone
--#needs _time _meta
--#defines open_inbox verdict

-- Looks up the digests ARGV[first] to ARGV[last]. Returns the rows of A and of B (the first digest at 2; B: false if there is
-- none), A's start (nil: there is none) and the tombstone horizon; or nil and a foreign identity.
--
-- Removes a horizon that has passed, because compiled scripts leave every transaction to commit.lua while there is one.
--
-- Rotates the inbox at the end of A, which is one retention after its start. A script with a longer retention may have written to A
-- until now, so only B, whose ids are older than A, is dropped, however old A's start is. If the clock is behind the start after a
-- failover, the ids are remembered longer by the difference, or until a repair.
--
-- If there is one digest and A has a start, the row of A is empty: HSETNX of the mark reports whether A has the digest, and costs
-- a commit less than HMGET.
local function open_inbox(now, first, last)
  local rows_a = first == last and {redis.call('HGET', @INBOX_A, 'id')} or
    redis.call('HMGET', @INBOX_A, 'id', unpack(ARGV, first, last))
  local meta, start, older, horizon, ends = rows_a[1], 0, false, 0, ''
  if meta then
    if string.sub(meta, 41) ~= @IDENTITY then return nil, identity_in(meta) end
    start, older, horizon, ends = times_in(meta)
  end
  local passed = horizon > 0 and now - horizon > @CLOCK_MARGIN
  if passed then horizon = 0 end
  if start == 0 then
    rows_a, start = redis.call('HMGET', @INBOX_A, 'id', unpack(ARGV, first, last)), nil
  elseif not start then -- malformed
    redis.call('HSET', @INBOX_A, 'id', meta_of(now, older, horizon))
    start = now
  elseif NOW >= ends then
    redis.call('UNLINK', @INBOX_B)
    redis.call('RENAME', @INBOX_A, @INBOX_B)
    redis.call('HSET', @INBOX_A, 'id', meta_of(now, true, horizon))
    rows_a, start, older = {}, now, true
  elseif passed then
    redis.pcall('HSET', @INBOX_A, 'id', meta_of(start, older, 0))
  end
  return rows_a, older and redis.call('HMGET', @INBOX_B, 'id', unpack(ARGV, first, last)), start, horizon
end

-- Returns what a value of the inbox means to a token. Tokens with the same base are of the same delivery or call.
local function verdict(value, token)
  if #value > 10 then return 'broken' end
  return string.sub(value, 1, 8) == string.sub(token, 1, 8) and 'replayed' or 'duplicate'
end
