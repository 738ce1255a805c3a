-- Purpose: the field id of an inbox generation, which a script reads and writes as a whole.
--
-- Its parts have fixed widths:
--   1-13   start     time of the first mark, ms; zeros: there is none
--   14     older     1 if there is a generation B, else 0
--   15-27  horizon   until when tombstones matter, ms; zeros: there are none
--   28-    identity  layout, namespace and keyspace
--#defines meta_of times_in identity_in

local function meta_of(start, older, horizon)
  return string.format('%013.0f%s%013.0f%s', start, older and '1' or '0', horizon, @IDENTITY)
end

-- Returns the start (0: there is none, nil: it is malformed), whether there is a generation B, and the horizon (0: none).
local function times_in(meta)
  local older, first = string.byte(meta, 14, 15) -- a time of 13 digits begins with no 0
  return tonumber(string.sub(meta, 1, 13)), older == @DIGIT_1, first ~= @DIGIT_0 and tonumber(string.sub(meta, 15, 27)) or 0
end

-- Returns the identity. Layouts before 3 have nothing else in the field.
local function identity_in(meta)
  if #meta < 28 or string.sub(meta, 1, 6) == 'luatx ' then return meta end
  return string.sub(meta, 28)
end
