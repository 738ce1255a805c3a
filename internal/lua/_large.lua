-- Purpose: adds to the outbox the few events that have large bodies, or whose id the outbox has.
--#needs _events _body
--#defines is_there adopt_body

-- Reports whether the server still has a large body, which the client has stored with an expiry.
local function is_there(stored)
  local _, name = staged(stored)
  return redis.call('EXISTS', own('body:' .. name)) == 1
end

-- Makes a large body permanent. Returns false if it is gone.
local function adopt_body(id, stored)
  local _, name = staged(stored)
  undo[#undo + 1], undo[#undo + 2] = {'UNLINK', own('body:' .. name)}, {'HDEL', own('bodies'), name}
  redis.call('HSET', own('bodies'), name, id)
  return redis.call('PERSIST', own('body:' .. name)) == 1
end
