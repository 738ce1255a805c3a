-- Purpose: puts entries of a dead-letter stream back at the end of the stream that they came from, or deletes them. It records
--          that in the same step.
-- KEYS:    1   dead-letter stream
--          2   stream
--          3   audit
-- ARGV:    1-4 audit   see _audit.lua
--          5   act     rearm, retry or discard
--          6-  entry   entries of the dead-letter stream
-- Reply:   1   time    server time, ms
--          2   letters one for each entry, see _audit.lua
--          3   ids     the ids of the new entries, of those that were put back; a repeated call has none
-- Bound:   linear in the entries, each of which may have some 1,000 fields; the client puts back an entry that deadletter.lua has
--          packed
-- Redis:   6.0
--#needs _time _audit

local DEAD, STREAM, WHAT = @DEAD, @STREAM, ARGV[5]
local ids = {}

local function act(id)
  local found = redis.call('XRANGE', DEAD, id, id)[1]
  if not found then return 'u' end
  local fields, packed = found[2], 0
  if fields[1] == 'dead-packed' then packed = 2 end
  -- The first 16 are the names and values that deadletter.lua has added.
  if fields[packed + 1] ~= 'dead-reason' then return 'w' end
  if WHAT ~= 'discard' then
    if fields[packed + 4] ~= STREAM then return 'w' end
    if packed > 0 then return 'p' end
    ids[#ids + 1] = redis.call('XADD', STREAM, '*', unpack(fields, 17))
  end
  redis.call('XDEL', DEAD, id)
  return 'd'
end

for arg = 6, #ARGV do answer(ARGV[arg], act(ARGV[arg])) end
local reply = finish(WHAT)
reply[3] = ids
return reply
