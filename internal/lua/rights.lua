-- Purpose: names the commands that the caller may not run, or that the server does not know.
-- KEYS:    1  void
-- ARGV:    the commands; a subcommand follows a bar
-- Reply:   1  1, or 0 if the script cannot ask the server (before 7.0)
--          2- the commands that the caller may not run, or that the server does not know
-- Bound:   linear in the arguments
-- Redis:   6.0

if not redis.acl_check_cmd then return {'0'} end

local ENOUGH = 12 -- arguments: more than any command needs at least

-- Reports whether the caller may run a command. Before 8.6 the server does not check the number of arguments: it reads
-- keys beyond the end of a call that is too short, and may crash. From 8.6 on it raises an error for a wrong number. So
-- the call begins long, filled up with a key that every caller has, and gets shorter until the server accepts it.
local function allowed(call)
  for length = ENOUGH, #call, -1 do
    local padded = {unpack(call)}
    for i = #call + 1, length do padded[i] = @VOID end
    local ok, may = pcall(redis.acl_check_cmd, unpack(padded))
    if ok then return may end
  end
  return false -- no such command
end

local reply = {'1'}
for _, name in ipairs(ARGV) do
  local call = {}
  for word in string.gmatch(name, '[^|]+') do call[#call + 1] = word end
  if not allowed(call) then reply[#reply + 1] = name end
end
return reply
