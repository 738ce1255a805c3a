-- Purpose: the inbox of a shard, two generations of a hash digest -> token, shared by the scripts that
-- look an id up.
--
-- Beside the digests (16 bytes) generation A holds: id (layout, namespace, keyspace), start (ms: its first
-- mark), b (there is a generation B), tomb (ms: until then tombstones matter), t<token> (a tombstone).
--#defines open_inbox verdict

-- Looks up the digests that stand in ask, of n elements, from its 7th place on, and turns the generations over when A has
-- reached the retention: an id is then found for at least the retention, for twice that at most. Returns the
-- rows of A and of B (digest i at 4 + i), A's start, the tombstone horizon; or nil and a foreign identity.
local function open_inbox(now, ask, n)
  local a = redis.call(unpack(ask, 1, n))
  if a[1] and a[1] ~= @IDENTITY then return nil, a[1] end
  local start, horizon, b = tonumber(a[2]), tonumber(a[4]) or 0, nil
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
    return {}, a, now, horizon
  elseif a[3] then
    ask[2] = @INBOX_B
    b = redis.call(unpack(ask, 1, n))
  end
  return a, b, start, horizon
end

-- Tells what a value found in the inbox means to a token: the same base is the same delivery or call.
local function verdict(value, token)
  if #value > 10 then return 'broken' end
  return string.sub(value, 1, 8) == string.sub(token, 1, 8) and 'replayed' or 'duplicate'
end
