-- Purpose: the format of the bodies in the hash entries.
--
--   body                a body whose id was derived from a message
--   + body              a body whose id the caller gave
--   = digest, body      a sent one: the SHA-1 of the body in hex, and what stood here before if bodies are kept
--   ! digest            an erased one
-- The digest is that of the body without the +.
--#defines bare digest_of

local function bare(stored)
  return string.byte(stored) == @GIVEN_MARK and string.sub(stored, 2) or stored
end

local function digest_of(stored)
  local mark = string.byte(stored)
  return (mark == @SENT_MARK or mark == @ERASED_MARK) and string.sub(stored, 2, 41) or redis.sha1hex(bare(stored))
end
