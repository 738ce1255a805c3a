-- Purpose: a look at the inbox of a shard and at the replies kept beside it.
--#needs _time _repair
--#defines inbox results

-- A time in ms that has passed, or nil: a text, a time to come.
local function past(text)
  local ms = tonumber(text)
  return ms and ms <= now and ms or nil
end

-- B without A's flag is looked at by nobody: its ids would be applied again.
local function forgotten_b()
  local start = past(redis.call('HGET', B, 'start'))
  if start and now - start >= 3 * @RETENTION then
    settle('stale', 'inbox:b', '', '', 'UNLINK', B)
  elseif exists['inbox:a'] then
    settle('unlinked', 'inbox:b', '', '', 'HSET', A, 'b', '1')
  else
    local tomb = redis.call('HGET', B, 'tomb') or '0'
    settle('unlinked', 'inbox:b', '', '', 'HSET', A, 'id', @IDENTITY, 'start', NOW, 'b', '1', 'tomb', tomb)
  end
end

-- The generations by the rule of open_inbox, which a shard without commits never comes to.
local function inbox()
  local a, fields = redis.call('HMGET', A, 'id', 'start', 'b'), redis.call('HLEN', A)
  local start = past(a[2])
  local guarded = exists.entries or exists.due or exists.decided -- events and timers, by the identity
  local empty = fields == 1 and a[1] and not guarded
  if empty or start and now - start >= 2 * @RETENTION then
    if exists['inbox:b'] then settle('stale', 'inbox:b', '', '', 'UNLINK', B) end
    settle('stale', 'inbox:a', '', '', 'UNLINK', A)
    if FIX and guarded then redis.call('HSET', A, 'id', @IDENTITY) end -- they keep their owner
    return
  end
  if exists['inbox:a'] then
    if not a[1] then settle('value', 'inbox:a', 'id', '', 'HSET', A, 'id', @IDENTITY) end
    if not start and not (fields == 1 and a[1]) then
      settle('value', 'inbox:a', 'start', a[2] or '', 'HSET', A, 'start', NOW)
    end
  end
  if not exists['inbox:b'] then
    if a[3] then settle('value', 'inbox:a', 'b', a[3], 'HDEL', A, 'b') end
  elseif start and now - start >= @RETENTION then
    settle('stale', 'inbox:b', '', '', 'UNLINK', B)
    if FIX then redis.call('HDEL', A, 'b') end
  elseif not a[3] then
    forgotten_b()
  end
end

local function results(name)
  local text = redis.call('HGET', key[name], 'start')
  local start = past(text)
  if not start then
    settle('value', name, 'start', text or '', 'HSET', key[name], 'start', NOW)
  elseif now - start >= 2 * @RETENTION then -- its last reply is a retention old
    settle('stale', name, '', '', 'UNLINK', key[name])
  end
end
