-- Purpose: enqueues events outside of a transaction: all of them, or none.
-- KEYS:    1-7         those of commit.lua
--          8-11        headers, lanes, seq, attempts
-- ARGV:    for each event
--          +1          id
--          +2          head, see _events.lua
--          +3          body
-- Reply:   time (server time, ms), then
--          'enqueued'  number of events that were new, 1 if the shard had none and has some now
--          'full'      name of the bound
--          'other'     index of the event whose id the outbox has with another body
--          'identity'  the identity found
-- Bound:   linear in the arguments
-- Redis:   6.0
--#needs _time _owned _events
--#lazy large(size_of digest_of is_there adopt_body) _body _large
--#lazy undoing(rollback) _rollback
--#lazy lanes(crowded enter) _outbox _lanes _enter

local function add_all()
  for arg = 1, #ARGV, 3 do
    local ok, full = enqueue(ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], NOW)
    if not ok then return full and {NOW, 'full', full} or {NOW, 'other', (arg + 2) / 3} end
  end
end

local ok, refusal = pcall(add_all)
if not ok or refusal then
  local left = undoing().rollback()
  if left then return redis.error_reply('ERR events not withdrawn: ' .. left) end
  return ok and refusal or redis.error_reply(type(refusal) == 'table' and refusal.err or tostring(refusal))
end
if not meta and outbox.came > 0 then redis.call('HSET', @INBOX_A, 'id', meta_of(now, false, 0)) end
local woken = keep_events(true)
return {NOW, 'enqueued', outbox.came, woken and 1 or 0}
