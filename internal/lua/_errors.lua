-- Purpose: the history of an event's failures: its last five attempts, newest first, a line each: time (ms), attempt,
-- class, text.
--#needs _time _outbox
--#defines note class_of

local HISTORY = 5

-- Notes a failed attempt. The class says what kind of failure it was, without blanks.
local function note(id, attempt, class, text)
  class = string.gsub(class, '%s', '_')
  local line = NOW .. ' ' .. attempt .. ' ' .. (class == '' and '-' or class) .. ' ' .. string.gsub(text, '[\r\n]', ' ')
  local old, ends = redis.call('HGET', ERRORS, id), 0
  if old then
    for _ = 2, HISTORY do ends = ends and string.find(old, '\n', ends + 1, true) end
    line = line .. '\n' .. (ends and string.sub(old, 1, ends - 1) or old)
  end
  redis.call('HSET', ERRORS, id, line)
end

-- The class of an event's last failure: what it was parked for.
local function class_of(id)
  return string.match(redis.call('HGET', ERRORS, id) or '', '^%S+ %S+ (%S+)') or '-'
end
