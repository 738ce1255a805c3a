-- Purpose: sets the position of a source back, or makes the shard forget it, so that messages count as new. The position gets a
--          generation that rejects the commits of earlier owners. The script also removes the note of a rollback failure.
-- KEYS:    1    void
--          2    inbox:a
--          3    positions    see _position.lua
--          4    broken
--          5    audit
-- ARGV:    1-4  audit        see _audit.lua
--          5    field        scope, source and partition, separated by NUL
--          6    name         of the position, for the audit
--          7    generation   of no owner
--          8    offset       messages behind it count as new; empty: all messages do, of any epoch
-- Reply:   1    time         server time, ms
--          2    letter       d done, u there is no position, w the offset has another length; see _audit.lua
-- Bound:   constant
-- Redis:   6.0
--#needs _time _owned _audit

local FIELD, NAME, GENERATION, OFFSET = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local old = redis.call('HGET', @POSITIONS, FIELD)
if not old then
  answer(NAME, 'u')
  return finish('reposition')
end
local stored, generation, epoch = string.match(old, '^(%d*)[ !](%d+) (.*)$', 11)
local token = string.sub(old, 1, 10)
if OFFSET == '' then
  stored, epoch = '', ''
elseif stored and stored ~= '' and #stored ~= #OFFSET then
  answer(NAME, 'w')
  return finish('reposition')
elseif stored and OFFSET < stored then
  stored, token = OFFSET, string.rep('\0', 10) -- of no commit
end
if generation and tonumber(generation) > tonumber(GENERATION) then GENERATION = generation end
redis.call('HSET', @POSITIONS, FIELD, token .. (stored or '') .. ' ' .. GENERATION .. ' ' .. (epoch or ''))
redis.call('HDEL', @BROKEN, FIELD)
answer(NAME, 'd')
return finish('reposition')
