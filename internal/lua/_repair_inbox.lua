-- Purpose: repairs the inbox of a shard and the replies kept beside it.
--#needs _time _meta _repair
--#defines inbox results

-- Returns a time (ms) that has passed as a number; nil for other texts and for times to come.
local function past(text)
  local ms = tonumber(text)
  return ms and ms <= now and ms or nil
end

-- Checks the generations by the rule of open_inbox, which never runs in a shard without commits. A's last id may be new, so the
-- ids of A are removed in two steps: A becomes B, and B goes when the new A has reached the retention.
local function inbox()
  local meta, fields = redis.call('HGET', INBOX_A, 'id'), redis.call('HLEN', INBOX_A)
  local found, older, horizon = times_in(meta or '')
  local start = found ~= 0 and past(found) or nil
  local alone = fields == 1 and found == 0 and not exists['inbox:b'] -- the identity and no mark
  local guarded = exists.entries or exists.due or exists.decided -- the identity guards events and timers
  if alone and not guarded or start and now - start >= 2 * @RETENTION then
    if exists['inbox:b'] then settle('stale', 'inbox:b', '', '', 'UNLINK', INBOX_B) end
    if fields > 1 then
      settle('stale', 'inbox:a', '', '', 'RENAME', INBOX_A, INBOX_B)
      if FIX then redis.call('HSET', INBOX_A, 'id', meta_of(now, true, horizon)) end
    else
      settle('stale', 'inbox:a', '', '', 'UNLINK', INBOX_A)
      if FIX and guarded then redis.call('HSET', INBOX_A, 'id', meta_of(0, false, 0)) end -- they keep their owner
    end
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
  elseif not older then -- commits do not read such a B, so its ids would be applied again
    local _, _, horizon_b = times_in(redis.call('HGET', INBOX_B, 'id') or '')
    settle('unlinked', 'inbox:b', '', '', 'HSET', INBOX_A, 'id', meta_of(start or now, true, math.max(horizon, horizon_b)))
  end
end

-- Checks a generation of the kept replies. The last reply of a generation may be new, so it becomes the older one first.
local function results(name)
  local text = redis.call('HGET', key[name], 'start')
  local start = past(text)
  if not start then
    settle('value', name, 'start', text or '', 'HSET', key[name], 'start', NOW)
  elseif now - start >= 2 * @RETENTION then
    if name == 'results:b' or not sound['results:b'] then
      settle('stale', name, '', '', 'UNLINK', key[name])
    else
      settle('stale', name, '', '', 'RENAME', key.results, key['results:b'])
      if FIX then redis.call('HSET', key['results:b'], 'start', NOW) end
    end
  end
end
