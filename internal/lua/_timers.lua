-- Purpose: the timers of a shard, for the scripts that change them.
--
--   due      subject of an open timer, by when it is due (ms)
--   decided  what became of a timer, by when (ms), for the retention: see revoked_member and fired_member
-- A timer ends when it leaves due, and the script that removes it decides.
--#needs _time
--#defines DUE revoked_member fired_member due_of is_decided decided forget

local DUE, DECIDED = @DUE, @DECIDED

local function revoked_member(subject) return 'r' .. subject end
local function fired_member(subject, due) return 'e' .. due .. ' ' .. subject end

-- Returns when the subject's open timer is due; nil if there is none.
local function due_of(subject)
  local score = redis.call('ZSCORE', DUE, subject)
  return score and tonumber(score) or nil
end

local function is_decided(member) return redis.call('ZSCORE', DECIDED, member) and true or false end

-- Closes a timer, and keeps the decision.
local function decided(subject, member)
  redis.call('ZADD', DECIDED, string.format('%.0f', now), member)
  redis.call('ZREM', DUE, subject)
end

-- Deletes decisions whose retention has passed: up to 100 more than there are new ones.
local function forget(new)
  local old = redis.call('ZRANGEBYSCORE', DECIDED, '-inf', string.format('%.0f', now - @RETENTION), 'LIMIT', 0, 100 + new)
  if #old > 0 then redis.call('ZREM', DECIDED, unpack(old)) end
end
