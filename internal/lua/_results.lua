-- Purpose: keeps the replies of a commit beside the inbox, in two generations of their own, and returns them to a retry.
-- If the server refuses to store them, the commit stands, and the retry gets an error that they are lost.
--
-- A field is the digest of the id. Its value is the number of commands, a colon and the replies.
--#needs _time _reply
--#defines keep_replies kept_replies

local function results_keys()
  local prefix = string.sub(@VOID, 1, -5)
  return prefix .. 'results', prefix .. 'results:b'
end

-- Removes the replies of an earlier commit of the id, which the inbox has forgotten.
local function forget_replies(digest)
  local RESULTS, RESULTS_B = results_keys()
  redis.pcall('HDEL', RESULTS, digest)
  redis.pcall('HDEL', RESULTS_B, digest)
end

local function keep_replies(digest, out, behind, commands)
  local RESULTS, RESULTS_B = results_keys()
  local parts, size = {}, 0
  for i = 1, commands do
    parts[i] = encode(out[behind + i])
    size = size + #parts[i]
    if size > @KEPT_BYTES then return forget_replies(digest) end
  end
  local began = redis.pcall('HGET', RESULTS, 'start')
  if type(began) == 'string' and (now - tonumber(began) >= @RETENTION or redis.call('HLEN', RESULTS) > @KEPT_COUNT) then
    redis.pcall('HSET', RESULTS, 'start', NOW) -- when the last reply may have been kept
    redis.pcall('RENAME', RESULTS, RESULTS_B)
    began = false
  end
  if not began then redis.pcall('HSET', RESULTS, 'start', NOW) end
  local kept = redis.pcall('HSET', RESULTS, digest, commands .. ':' .. table.concat(parts))
  if type(kept) == 'table' then forget_replies(digest) end
end

-- Returns the kept replies of an id, or 0.
local function kept_replies(digest)
  local RESULTS, RESULTS_B = results_keys()
  local found = redis.pcall('HGET', RESULTS, digest) or redis.pcall('HGET', RESULTS_B, digest)
  return type(found) == 'string' and found or 0
end
