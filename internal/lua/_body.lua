-- Purpose: the format of the bodies in the hash entries.
--
--   body                      a body whose id was derived from a message
--   ~ size, space, name       a large body, which is in the key body:name
--   + one of these            the caller gave the id
--   = digest, one of these    a sent one: the SHA-1 of the body in hex, and what stood here before if bodies are kept
--   ! digest                  an erased one
-- The digest is that of the body without the +. The size counts the +. The hash bodies has the event of each name. Few events are
-- large, so scripts do not declare these keys: while a slot migrates, the declared void key keeps them from running.
--#defines own staged bare size_of body_of digest_of drop_body

local function own(name) return string.sub(@VOID, 1, -5) .. name end

-- Returns the size and the name of a large body, or nil.
local function staged(stored)
  local first = string.byte(stored, 1)
  if first == @STAGED_MARK or first == @GIVEN_MARK and string.byte(stored, 2) == @STAGED_MARK then
    return string.match(stored, '~(%d+) (.*)$')
  end
end

local function bare(stored)
  return string.byte(stored, 1) == @GIVEN_MARK and string.sub(stored, 2) or stored
end

-- Returns the bytes that count for a stored body.
local function size_of(stored) return tonumber((staged(stored))) or #stored end

-- Returns the body without its mark; empty if a large one is lost.
local function body_of(stored)
  local _, name = staged(stored)
  return name and (redis.call('GET', own('body:' .. name)) or '') or bare(stored)
end

local function digest_of(stored)
  local mark = string.byte(stored, 1)
  return (mark == @SENT_MARK or mark == @ERASED_MARK) and string.sub(stored, 2, 41) or redis.sha1hex(body_of(stored))
end

-- Deletes what a stored body has beside entries.
local function drop_body(stored)
  local _, name = staged(stored)
  if not name then return end
  redis.call('UNLINK', own('body:' .. name))
  redis.call('HDEL', own('bodies'), name)
end
