-- Purpose: records what an operator does in an audit stream, by the script that does it.
--
-- The audit stream is the last key of such a script. Its first arguments are:
--   1  id of the operation
--   2  number of the call within the operation
--   3  who acts
--   4  why
-- The reply holds a letter for each event:
--   d  done
--   u  unknown
--   w  in a state that the act is not for
--   n  parked or sent after the cut-off
--   e  its body was erased
--   b  its body was not kept
--   l  leased
--   f  the outbox is full
--   k  the outbox has the event already
--   o  the outbox has the event with another body
--   p  a dead letter that is packed: no script can put it back
--#needs _time
--#defines WHO WHY answer finish

local AUDIT = KEYS[#KEYS]
local OPERATION, CALL, WHO, WHY = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- About how many records are kept; ids in a record; records in which a repeated call is searched for.
local AUDITED, NAMED, LATELY = 10000, 100, 16

-- A client repeats a call whose reply was lost. The script must not act twice, because an event may have been parked anew.
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

-- Records the act if it changed anything, and returns the reply.
local function finish(act)
  local letters = table.concat(answers)
  if done > 0 then
    redis.call('XADD', AUDIT, 'MAXLEN', '~', AUDITED, '*', 'operation', OPERATION, 'call', CALL, 'who', WHO, 'act', act,
      'why', WHY, 'done', done, 'asked', #answers, 'ids', cjson.encode(names), 'answers', letters)
  end
  return {NOW, letters}
end
