-- Purpose: repairs the inbox of a shard and the replies kept beside it.
--#needs _time _repair
--#defines inbox results

-- Returns a time (ms) that has passed as a number; nil for other texts and for times to come.
local function past(text)
  local ms = tonumber(text)
  return ms and ms <= now and ms or nil
end

-- Corrects a B without A's flag. Commits do not read such a B, so its ids would be applied again.
local function forgotten_b()
  local start = past(redis.call('HGET', INBOX_B, 'start'))
  if start and now - start >= 3 * @RETENTION then
    settle('stale', 'inbox:b', '', '', 'UNLINK', INBOX_B)
  elseif exists['inbox:a'] then
    settle('unlinked', 'inbox:b', '', '', 'HSET', INBOX_A, 'b', '1')
  else
    local tomb = redis.call('HGET', INBOX_B, 'tomb') or '0'
    settle('unlinked', 'inbox:b', '', '', 'HSET', INBOX_A, 'id', @IDENTITY, 'start', NOW, 'b', '1', 'tomb', tomb)
  end
end

-- Checks the generations by the rule of open_inbox, which never runs in a shard without commits.
local function inbox()
  local found, fields = redis.call('HMGET', INBOX_A, 'id', 'start', 'b'), redis.call('HLEN', INBOX_A)
  local start = past(found[2])
  local guarded = exists.entries or exists.due or exists.decided -- the identity guards events and timers
  local empty = fields == 1 and found[1] and not guarded
  if empty or start and now - start >= 2 * @RETENTION then
    if exists['inbox:b'] then settle('stale', 'inbox:b', '', '', 'UNLINK', INBOX_B) end
    settle('stale', 'inbox:a', '', '', 'UNLINK', INBOX_A)
    if FIX and guarded then redis.call('HSET', INBOX_A, 'id', @IDENTITY) end -- they keep their owner
    return
  end
  if exists['inbox:a'] then
    if not found[1] then settle('value', 'inbox:a', 'id', '', 'HSET', INBOX_A, 'id', @IDENTITY) end
    if not start and not (fields == 1 and found[1]) then
      settle('value', 'inbox:a', 'start', found[2] or '', 'HSET', INBOX_A, 'start', NOW)
    end
  end
  if not exists['inbox:b'] then
    if found[3] then settle('value', 'inbox:a', 'b', found[3], 'HDEL', INBOX_A, 'b') end
  elseif start and now - start >= @RETENTION then
    settle('stale', 'inbox:b', '', '', 'UNLINK', INBOX_B)
    if FIX then redis.call('HDEL', INBOX_A, 'b') end
  elseif not found[3] then
    forgotten_b()
  end
end

local function results(name)
  local text = redis.call('HGET', key[name], 'start')
  local start = past(text)
  if not start then
    settle('value', name, 'start', text or '', 'HSET', key[name], 'start', NOW)
  elseif now - start >= 2 * @RETENTION then -- its last reply is older than the retention
    settle('stale', name, '', '', 'UNLINK', key[name])
  end
end
