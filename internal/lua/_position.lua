-- Purpose: the positions of a shard: how far the transactions of sources that keep order have come.
--
-- The hash positions has a field for each scope, source and partition, separated by NUL. Its value:
--   1-10   token    of the last commit; zeros: an operator has set the position
--   digits offset   of the last commit; none: nothing counts as committed
--   1      mark     a space, or ! after a rollback failure
--   digits owner    generation of the owner that has committed last
--   1      space
--   rest   epoch    of the source
-- Offsets of a source have the same number of digits, so the order of the texts is the order of the messages.
--#needs _inbox
--#defines place_at

local POSITIONS = string.sub(@VOID, 1, -5) .. 'positions'

-- Returns the position that a transaction moves; its arguments begin at ARGV[first]. The second result is the outcome if the
-- transaction must not move it.
local function place_at(first, token)
  local field, offset, after, owner = ARGV[first], ARGV[first + 1], ARGV[first + 2], ARGV[first + 3]
  local place = {field = field}

  -- Returns 1 like a mark that is new, or the error of the server.
  function place.move()
    local written = redis.pcall('HSET', POSITIONS, field, token .. offset .. owner)
    return type(written) == 'table' and written or 1
  end

  function place.note_broken() redis.call('HSET', POSITIONS, field, token .. offset .. '!' .. string.sub(owner, 2)) end

  local old = redis.pcall('HGET', POSITIONS, field)
  if type(old) == 'table' then return place, {'failed', 0, old.err} end
  place.undo = old and {'HSET', POSITIONS, field, old} or {'HDEL', POSITIONS, field}
  if not old then return place, after ~= '' and {'early', ''} or nil end
  local stored, mark, generation, epoch = string.match(old, '^(%d*)([ !])(%d+) (.*)$', 11)
  if not stored then return place, {'failed', 0, 'the position is malformed'} end
  local own_generation, own_epoch = string.match(owner, '^ (%d+) (.*)$')
  local comparable = stored ~= '' and epoch == own_epoch
  if mark == '!' then
    local left = redis.pcall('HGET', @BROKEN, field)
    return place, {'broken', type(left) == 'string' and left or ''}
  elseif comparable and #stored ~= #offset then
    return place, {'failed', 0, 'offset ' .. offset .. ' has another length than the stored ' .. stored}
  elseif comparable and offset <= stored then
    -- This comes before the fence, because an owner whose reply was lost must learn that its commit has happened.
    local own = offset == stored and verdict(string.sub(old, 1, 10), token) == 'replayed'
    return place, {own and 'replayed' or 'duplicate', 0, string.sub(old, 1, 10) == token and own and 1 or 0, 0}
  elseif tonumber(own_generation) < tonumber(generation) then
    return place, {'fenced'}
  elseif stored ~= '' and not comparable then
    return place, {'epoch', epoch}
  elseif stored < after then
    return place, {'early', stored}
  end
  return place
end
