-- Purpose: the inbox of a shard: two generations of a hash digest -> token, shared by the scripts that look up an id.
--
-- Beside the digests (16 bytes) generation A holds these fields:
--   id        layout, namespace and keyspace
--   start     its first mark, ms
--   b         1 if there is a generation B
--   tomb      until when tombstones matter, ms
--   t<token>  a tombstone
--#defines open_inbox verdict

-- Looks up the digests in ask, a command of size elements, from its 7th element on. Rotates the inbox when A has reached the
-- retention, so that an id is found for at least the retention and at most twice that. Returns the rows of A and of B
-- (digest i at 4 + i), A's start and the tombstone horizon; or nil and a foreign identity.
local function open_inbox(now, ask, size)
  local rows_a = redis.call(unpack(ask, 1, size))
  if rows_a[1] and rows_a[1] ~= @IDENTITY then return nil, rows_a[1] end
  local start, horizon, rows_b = tonumber(rows_a[2]), tonumber(rows_a[4]) or 0, nil
  if start and start > now then -- a failover to a slower clock
    redis.call('HSET', @INBOX_A, 'start', string.format('%.0f', now))
    start = now
  end
  local age = start and now - start or 0
  if age >= 2 * @RETENTION then
    redis.call('UNLINK', @INBOX_A, @INBOX_B)
    return {}, nil, nil, 0
  elseif age >= @RETENTION then
    redis.call('UNLINK', @INBOX_B)
    redis.call('RENAME', @INBOX_A, @INBOX_B)
    redis.call('HSET', @INBOX_A, 'id', @IDENTITY, 'start', string.format('%.0f', now), 'b', '1', 'tomb', string.format('%.0f', horizon))
    return {}, rows_a, now, horizon
  elseif rows_a[3] then
    ask[2] = @INBOX_B
    rows_b = redis.call(unpack(ask, 1, size))
  end
  return rows_a, rows_b, start, horizon
end

-- Returns what a value of the inbox means to a token. Tokens with the same base are of the same delivery or call.
local function verdict(value, token)
  if #value > 10 then return 'broken' end
  return string.sub(value, 1, 8) == string.sub(token, 1, 8) and 'replayed' or 'duplicate'
end
