-- Purpose: puts entries of a dead-letter stream back at the end of the stream that they came from, or deletes them. It records
--          that in the same step.
-- KEYS:    1   dead-letter stream
--          2   stream
--          3   audit
-- ARGV:    1-4 audit   see _audit.lua
--          5   act     rearm or discard
--          6-  entry   entries of the dead-letter stream
-- Reply:   1   time    server time, ms
--          2   letters one for each entry, see _audit.lua
-- Bound:   linear in the entries, each of which may have some 3,900 fields
-- Redis:   6.0
--#needs _time _audit

local DEAD, STREAM, WHAT = @DEAD, @STREAM, ARGV[5]

local function act(id)
  local found = redis.call('XRANGE', DEAD, id, id)[1]
  if not found then return 'u' end
  local fields = found[2]
  -- The first 16 are the names and values that deadletter.lua has added.
  if fields[1] ~= 'dead-reason' or fields[4] ~= STREAM then return 'w' end
  if WHAT == 'rearm' then redis.call('XADD', STREAM, '*', unpack(fields, 17)) end
  redis.call('XDEL', DEAD, id)
  return 'd'
end

for arg = 6, #ARGV do answer(ARGV[arg], act(ARGV[arg])) end
return finish(WHAT)
