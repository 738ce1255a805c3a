-- Purpose: enqueues events beside any transaction: all of them, or none.
-- KEYS:    those of commit.lua, 1 to 7; then headers, lanes, seq, attempts
-- ARGV:    id, head (see _events.lua) and body of each event
-- Reply:   server time (ms), then enqueued, the number of events that were new, 1 if the shard had none and has some now;
--          or full and what; or other and the index of the event whose id is known with another body; or 'identity' and
--          the one found.
-- Bound:   linear in the arguments
-- Redis:   6.0
--#needs _time _events
--#lazy undoing(rollback) _rollback
--#lazy lanes(crowded enter) _outbox _lanes _enter

local identity = redis.call('HGET', @INBOX_A, 'id')
if identity and identity ~= @IDENTITY then return {NOW, 'identity', identity} end

local function add_all()
  for q = 1, #ARGV, 3 do
    local ok, full = enqueue(ARGV[q], ARGV[q + 1], ARGV[q + 2], NOW)
    if not ok then return full and {NOW, 'full', full} or {NOW, 'other', (q + 2) / 3} end
  end
end

local ok, refusal = pcall(add_all)
if not ok or refusal then
  local left = undoing().rollback()
  if left then return redis.error_reply('ERR events not withdrawn: ' .. left) end
  return ok and refusal or redis.error_reply(type(refusal) == 'table' and refusal.err or tostring(refusal))
end
if not identity and outbox.came > 0 then redis.call('HSET', @INBOX_A, 'id', @IDENTITY, 'start', NOW) end
keep_events()
local came = outbox.came
return {NOW, 'enqueued', came, came > 0 and outbox.events == came and 1 or 0}
