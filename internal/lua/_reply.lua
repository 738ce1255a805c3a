-- Purpose: writes a command's reply as RESP2. RESP2 has type tags and lengths, so no two replies look alike, and the client's own
-- parser reads kept replies.
--#defines encode

local function encode(reply)
  local kind = type(reply)
  if kind == 'string' then return '$' .. #reply .. '\r\n' .. reply .. '\r\n' end
  if kind == 'number' then return ':' .. string.format('%.0f', reply) .. '\r\n' end
  if kind ~= 'table' then return reply and ':1\r\n' or '$-1\r\n' end
  if reply.ok then return '+' .. reply.ok .. '\r\n' end
  if reply.err then return '-' .. string.gsub(reply.err, '[\r\n]', ' ') .. '\r\n' end
  local parts = {'*' .. #reply .. '\r\n'}
  for i = 1, #reply do parts[i + 1] = encode(reply[i]) end
  return table.concat(parts)
end
