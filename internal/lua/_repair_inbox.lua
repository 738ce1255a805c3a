-- Purpose: repairs the inbox of a shard and the replies kept beside it.
--#needs _time _meta _repair
--#defines inbox results

-- Returns a time (ms) that has passed as a number; nil for other texts and for times to come.
local function past(text)
  local ms = tonumber(text)
  return ms and ms <= now and ms or nil
end

-- Corrects a B without A's flag. Commits do not read such a B, so its ids would be applied again.
local function forgotten_b(start, horizon)
  local start_b, _, horizon_b = times_in(redis.call('HGET', INBOX_B, 'id') or '')
  start_b = start_b ~= 0 and past(start_b)
  if start_b and now - start_b >= 3 * @RETENTION then
    settle('stale', 'inbox:b', '', '', 'UNLINK', INBOX_B)
  elseif exists['inbox:a'] then
    settle('unlinked', 'inbox:b', '', '', 'HSET', INBOX_A, 'id', meta_of(start or 0, true, horizon))
  else
    settle('unlinked', 'inbox:b', '', '', 'HSET', INBOX_A, 'id', meta_of(now, true, horizon_b))
  end
end

-- Checks the generations by the rule of open_inbox, which never runs in a shard without commits.
local function inbox()
  local meta, fields = redis.call('HGET', INBOX_A, 'id'), redis.call('HLEN', INBOX_A)
  local found, older, horizon = times_in(meta or '')
  local start, alone = found ~= 0 and past(found) or nil, fields == 1 and found == 0 -- alone: the identity and no mark
  local guarded = exists.entries or exists.due or exists.decided -- the identity guards events and timers
  if alone and not guarded or start and now - start >= 2 * @RETENTION then
    if exists['inbox:b'] then settle('stale', 'inbox:b', '', '', 'UNLINK', INBOX_B) end
    settle('stale', 'inbox:a', '', '', 'UNLINK', INBOX_A)
    if FIX and guarded then redis.call('HSET', INBOX_A, 'id', meta_of(0, false, 0)) end -- they keep their owner
    return
  end
  local lost = older and not exists['inbox:b']
  if exists['inbox:a'] and (lost or not start and not alone) then
    start, older = start or not alone and now or nil, older and not lost
    settle('value', 'inbox:a', 'id', meta or '', 'HSET', INBOX_A, 'id', meta_of(start or 0, older, horizon))
  end
  if not exists['inbox:b'] then return end
  if start and now - start >= @RETENTION then
    settle('stale', 'inbox:b', '', '', 'UNLINK', INBOX_B)
    if FIX then redis.call('HSET', INBOX_A, 'id', meta_of(start, false, horizon)) end
  elseif not older then
    forgotten_b(start, horizon)
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
