-- Purpose: notes the consumers that have lost entries. While a note exists, commit.lua asks XPENDING whether an entry is still
-- pending for the consumer; without one, it does not ask. So each script that takes an entry from a consumer notes it.
--#needs _time
--#defines note_taken

-- Longer than any handler runs. The hash expires that long after the last note.
local NOTE_MS = '172800000' -- 48 hours

-- Notes the consumers that are the keys of a table. It comes before the takeover: if it raises an error, nothing is taken.
local function note_taken(group, consumers)
  local note = {'HSET', @TAKEN}
  for consumer in pairs(consumers) do
    note[#note + 1] = group .. '\0' .. consumer
    note[#note + 1] = NOW
  end
  if #note == 2 then return end
  local noted = redis.pcall(unpack(note))
  if type(noted) == 'table' then
    if string.find(noted.err, 'WRONGTYPE', 1, true) then return end -- commit.lua meets it, too, and asks XPENDING
    error(noted)
  end
  redis.call('PEXPIRE', @TAKEN, NOTE_MS)
end
