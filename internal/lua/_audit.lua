-- Purpose: what an operator does is recorded in an audit stream, by the script that does it.
--
-- The last key of such a script is the audit stream; its first four arguments are the operation's id, the number of the
-- call within it, who acts and why. It answers with a letter for each event: d done, u unknown, w in a state that the act
-- is not for, n parked or sent after the cut-off, e its body was erased, b its body was not kept, l leased, f the outbox is
-- full, k known already, o known with another body.
--#needs _time
--#defines WHO WHY answer finish

local AUDIT = KEYS[#KEYS]
local OPERATION, CALL, WHO, WHY = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local AUDITED, NAMED, LATELY = 10000, 100, 16 -- records kept, about; ids in a record; records in which a copy is sought

-- A call whose answer was lost comes again. What it did must not be done twice: an event may have been parked anew.
for _, record in ipairs(redis.call('XREVRANGE', AUDIT, '+', '-', 'COUNT', LATELY)) do
  local field = {}
  for i = 1, #record[2], 2 do field[record[2][i]] = record[2][i + 1] end
  if field.operation == OPERATION and field.call == CALL then return {NOW, field.answers} end
end

local answers, done, names = {}, 0, {}
local function answer(id, letter)
  answers[#answers + 1] = letter
  if letter ~= 'd' then return end
  done = done + 1
  if done <= NAMED then names[done] = id end
end

-- Records the act where it did anything, and returns the reply.
local function finish(act)
  local letters = table.concat(answers)
  if done > 0 then
    redis.call('XADD', AUDIT, 'MAXLEN', '~', AUDITED, '*', 'operation', OPERATION, 'call', CALL, 'who', WHO, 'act', act,
      'why', WHY, 'done', done, 'asked', #answers, 'ids', cjson.encode(names), 'answers', letters)
  end
  return {NOW, letters}
end
