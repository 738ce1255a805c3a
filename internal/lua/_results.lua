-- Purpose: keeps the replies of a commit beside the inbox, in two generations of their own, and returns them to a retry.
-- If the server refuses to store them, the commit stands, and the retry gets an error that they are lost.
-- A field is the id's digest, its value the number of commands, a colon and the replies.
--#needs _time _reply
--#defines keep_replies kept_replies

local function results_keys()
  local prefix = string.sub(@VOID, 1, -5)
  return prefix .. 'results', prefix .. 'results:b'
end

local function keep_replies(digest, out, n, commands)
  local R, R_B = results_keys()
  local parts, size = {}, 0
  for i = 1, commands do
    parts[i] = encode(out[n + i])
    size = size + #parts[i]
    if size > @KEPT_BYTES then return end
  end
  local began = redis.pcall('HGET', R, 'start')
  if type(began) == 'string' and (now - tonumber(began) >= @RETENTION or redis.call('HLEN', R) > @KEPT_COUNT) then
    redis.pcall('RENAME', R, R_B)
    began = false
  end
  if not began then redis.pcall('HSET', R, 'start', NOW) end
  redis.pcall('HSET', R, digest, commands .. ':' .. table.concat(parts))
end

-- The replies that an id has left, or 0.
local function kept_replies(digest)
  local R, R_B = results_keys()
  local found = redis.pcall('HGET', R, digest) or redis.pcall('HGET', R_B, digest)
  return type(found) == 'string' and found or 0
end
