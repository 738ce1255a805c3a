-- Purpose: keeps the history of an event's failures: its last five attempts, newest first, a line each.
--
-- A line holds, with a blank between them: time (ms), attempt, class (without blanks, - for none), text.
--#needs _time _outbox
--#defines note class_in class_of

local HISTORY = 5

-- Notes a failed attempt. The class is the kind of the failure.
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

-- Returns the class of the last failure in a history, for which the event was parked.
local function class_in(history)
  return string.match(history or '', '^%S+ %S+ (%S+)') or '-'
end

local function class_of(id) return class_in(redis.call('HGET', ERRORS, id)) end
