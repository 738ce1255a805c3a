-- Purpose: trims from a stream what every one of its groups has read and acknowledged, and nothing else.
-- KEYS:    1 stream
-- ARGV:    1 '=' (exactly, which takes as long as there is to trim) or '~' (whole nodes of some hundred entries)
-- Reply:   how many entries were trimmed; 0 where the stream has no group
-- Bound:   linear in the groups, and in what is trimmed: '~' at most 100 nodes, before Redis 6.2 at most 10,000 entries
-- Redis:   6.0

local STREAM, MODE = @STREAM, ARGV[1]

-- Ids are compared as text: their halves have 64 bits, the numbers of Lua 53.
local function parts(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return ms or id, seq or '0'
end
local function below(a, b)
  local ams, aseq = parts(a)
  local bms, bseq = parts(b)
  if ams == bms then ams, bms = aseq, bseq end
  if #ams ~= #bms then return #ams < #bms end
  return ams < bms
end
local function behind(id)
  local ms, seq = parts(id)
  if #seq > 15 then return id end -- one less is trimmed
  return ms .. '-' .. string.format('%.0f', tonumber(seq) + 1)
end

local groups = redis.pcall('XINFO', 'GROUPS', STREAM)
if groups.err then
  return string.find(groups.err, 'no such key', 1, true) and 0 or groups
end
local cut
for _, flat in ipairs(groups) do
  local group = {}
  for i = 1, #flat, 2 do group[flat[i]] = flat[i + 1] end
  local needed = behind(group['last-delivered-id'])
  local oldest = redis.call('XPENDING', STREAM, group.name)[2]
  if oldest and below(oldest, needed) then needed = oldest end
  if not cut or below(needed, cut) then cut = needed end
end
if not cut then return 0 end

local trimmed = redis.pcall('XTRIM', STREAM, 'MINID', MODE, cut)
if type(trimmed) == 'number' then return trimmed end
if not string.find(trimmed.err, 'syntax', 1, true) then return trimmed end

-- Before Redis 6.2: one by one, from the oldest.
local n = 0
for _ = 1, 10 do
  local page = redis.call('XRANGE', STREAM, '-', '+', 'COUNT', 1000)
  for _, entry in ipairs(page) do
    if not below(entry[1], cut) then return n end
    n = n + redis.call('XDEL', STREAM, entry[1])
  end
  if #page < 1000 then break end
end
return n
