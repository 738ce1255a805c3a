-- Purpose: adds dead letters to a dead-letter stream, as an operator has kept them. It records that in the same step.
-- KEYS:    1   dead-letter stream
--          2   audit
-- ARGV:    1-4 audit   see _audit.lua
--          5-  for each dead letter:
--              entry   the id that it had in its stream, for the audit
--              texts   number of the texts that follow
--              text    names and values, as deadletter.lua writes them
-- Reply:   1   time    server time, ms
--          2   letters one for each dead letter, see _audit.lua
-- Bound:   linear in the dead letters, each of which has at most some 2,020 texts
-- Redis:   6.0
--#needs _time _audit

local arg = 5
while ARGV[arg] do
  local last = arg + 1 + tonumber(ARGV[arg + 1])
  redis.call('XADD', @DEAD, '*', unpack(ARGV, arg + 2, last))
  answer(ARGV[arg], 'd')
  arg = last + 1
end
return finish('import')
