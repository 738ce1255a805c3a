-- Purpose: names the commands that the caller may not run, or that the server does not know.
-- KEYS:    1 void
-- ARGV:    the commands; a subcommand behind a bar
-- Reply:   1, or 0 where the server cannot be asked (before 7.0); then the commands
-- Bound:   linear in the arguments
-- Redis:   6.0

if not redis.acl_check_cmd then return {'0'} end
local reply = {'1'}
for _, name in ipairs(ARGV) do
  local command, sub = string.match(name, '^([^|]+)|?(.*)$')
  local ok, may
  if sub == '' then
    ok, may = pcall(redis.acl_check_cmd, command)
  else
    ok, may = pcall(redis.acl_check_cmd, command, sub)
  end
  if not ok or not may then reply[#reply + 1] = name end
end
return reply
