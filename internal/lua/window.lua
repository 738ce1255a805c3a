-- Purpose: makes a stream recognize entries that are added again, if the server supports it: XADD with IDMP, from Redis 8.6 on. The
--          stream keeps ids for at least as long as the caller asks for. A change of the window makes the stream forget its ids,
--          so the script only widens the window, and creates a missing stream before its first entry.
-- KEYS:    1  stream
-- ARGV:    1  duration  of the window, s
--          2  ids       kept of each producer
-- Reply:   'once'          the stream recognizes entries
--          'plain'         the server has no IDMP, or the key is not a stream
--          'denied', text  the caller may not run a command
--          or an error of a server that accepts no writes
-- Bound:   constant
-- Redis:   6.0

local STREAM, DURATION, IDS = @STREAM, tonumber(ARGV[1]), tonumber(ARGV[2])
local WITH_IDMP = 0x080600

if (redis.REDIS_VERSION_NUM or 0) < WITH_IDMP then return {'plain'} end

local function is_missing(reply) return type(reply) == 'table' and reply.err and string.find(reply.err, 'no such key', 1, true) end

local function refusal(err)
  if string.find(err, 'WRONGTYPE', 1, true) then return {'plain'} end
  return string.find(err, 'ACL failure', 1, true) and {'denied', err} or {err = err}
end

local info = redis.pcall('XINFO', 'STREAM', STREAM)
if is_missing(info) then
  local allowed = redis.pcall('XCFGSET', STREAM, 'IDMP-DURATION', ARGV[1]) -- changes nothing while the stream is missing
  if not is_missing(allowed) then return refusal(allowed.err or 'ERR XCFGSET of a missing stream succeeded') end
  local created = redis.pcall('XADD', STREAM, 'MAXLEN', '0', '*', 'f', '') -- its entry is trimmed at once
  if type(created) == 'table' then return refusal(created.err) end
  info = redis.pcall('XINFO', 'STREAM', STREAM)
end
if info.err then return refusal(info.err) end

local fields = {}
for i = 1, #info, 2 do fields[info[i]] = info[i + 1] end
local duration, ids = fields['idmp-duration'], fields['idmp-maxsize']
if not duration or not ids then return {'plain'} end
if duration < DURATION or ids < IDS then
  local widened = redis.pcall('XCFGSET', STREAM, 'IDMP-DURATION', math.max(duration, DURATION), 'IDMP-MAXSIZE', math.max(ids, IDS))
  if widened.err then return refusal(widened.err) end
end
return {'once'}
