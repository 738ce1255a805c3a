-- Purpose: the timers of a shard, shared by the scripts that change them.
--
-- due holds the open timers: subject -> due (ms). A timer ends by leaving it, and whoever takes it out decides.
-- decided remembers what became of one, for the retention: member -> when (ms), see revoked_member and fired_member.
--#needs _time
--#defines DUE revoked_member fired_member due_of is_decided decided forget

local DUE, DECIDED = @DUE, @DECIDED

local function revoked_member(subject) return 'r' .. subject end
local function fired_member(subject, due) return 'e' .. due .. ' ' .. subject end

-- When the subject's open timer is due; nil: it has none.
local function due_of(subject)
  local score = redis.call('ZSCORE', DUE, subject)
  return score and tonumber(score) or nil
end

local function is_decided(member) return redis.call('ZSCORE', DECIDED, member) and true or false end

-- Closes a timer, and remembers why.
local function decided(subject, member)
  redis.call('ZADD', DECIDED, string.format('%.0f', now), member)
  redis.call('ZREM', DUE, subject)
end

-- Forgets decisions whose retention has passed: faster than as many new ones come.
local function forget(new)
  local old = redis.call('ZRANGEBYSCORE', DECIDED, '-inf', string.format('%.0f', now - @RETENTION), 'LIMIT', 0, 100 + new)
  if #old > 0 then redis.call('ZREM', DECIDED, unpack(old)) end
end
