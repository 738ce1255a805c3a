-- Purpose: the field id of an inbox generation, which a script reads and writes as a whole.
--
-- Its parts have fixed widths:
--   1-13   end       when the generation becomes B, ms; zeros: there is no start
--   14-26  start     time of the first mark, ms; zeros: there is none
--   27     older     1 if there is a generation B, else 0
--   28-40  horizon   until when tombstones matter, ms; zeros: there are none
--   41-    identity  layout, namespace and keyspace
--
-- The end comes first because compiled scripts compare the whole field with the time, as texts.
--#defines meta_of times_in identity_in

local function meta_of(start, older, horizon)
  return string.format('%013.0f%013.0f%s%013.0f%s', start == 0 and 0 or start + @RETENTION, start, older and '1' or '0', horizon, @IDENTITY)
end

-- Returns the start (0: there is none, nil: it is malformed), whether there is a generation B, the horizon (0: none) and the
-- end, a text.
local function times_in(meta)
  local older, first = string.byte(meta, 27, 28) -- a time of 13 digits begins with no 0
  return tonumber(string.sub(meta, 14, 26)), older == @DIGIT_1, first ~= @DIGIT_0 and tonumber(string.sub(meta, 28, 40)) or 0,
    string.sub(meta, 1, 13)
end

-- Returns the identity, which begins elsewhere in other layouts.
local function identity_in(meta)
  return string.sub(meta, string.find(meta, 'luatx ', 1, true) or #meta > 40 and 41 or 1)
end
