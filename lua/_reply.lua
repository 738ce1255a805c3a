-- Purpose: writes a command's reply as RESP2, which is type-tagged and length-prefixed, so that no two replies look
-- alike: guarded reads are compared by its SHA1, kept replies are handed to the client's own parser.

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

-- The digest of a read's reply. The order tells whether that of the elements means anything: o it does, m members
-- without an order, p pairs without one (a hash changes its order after mere reads). Of an error only the first word
-- counts: the rest names the script. Empty: there is none.
local function digest_of(order, reply)
  if type(reply) == 'number' and math.abs(reply) >= 9007199254740992 then
    return '' -- Lua cannot tell it from its neighbours
  end
  if type(reply) == 'table' and reply.err then return redis.sha1hex('-' .. string.match(reply.err, '^%S*')) end
  if order == 'o' or type(reply) ~= 'table' then return redis.sha1hex(encode(reply)) end
  local step, parts = order == 'p' and 2 or 1, {}
  for i = 1, #reply, step do
    parts[#parts + 1] = encode(reply[i]) .. (step == 2 and encode(reply[i + 1]) or '')
  end
  table.sort(parts)
  return redis.sha1hex(#parts .. table.concat(parts))
end

-- Runs guarded reads again, which stand from q on. Returns the index of the one that has changed, if any, and where
-- they end.
local function conflict(q, guards)
  for i = 1, guards do
    local head = ARGV[q]
    local last = q + 1 + tonumber(string.sub(head, 2))
    if digest_of(string.sub(head, 1, 1), redis.pcall(unpack(ARGV, q + 2, last))) ~= ARGV[q + 1] then return i end
    q = last + 1
  end
  return nil, q
end
