-- Purpose: trims the entries that every group of a stream has read and acknowledged, and no others.
-- KEYS:    1  stream
-- ARGV:    1  mode  = exactly, which takes as long as there is to trim; ~ whole nodes of some hundred entries
-- Reply:   number of entries trimmed; 0 if the stream has no group
-- Bound:   linear in the groups and in the entries trimmed: for ~ at most 100 nodes, before Redis 6.2 at most 10,000 entries
-- Redis:   6.0

local STREAM, MODE = @STREAM, ARGV[1]

-- Compares ids as text, because their halves have 64 bits and the numbers of Lua have 53.
local function parts(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return ms or id, seq or '0'
end
local function below(a, b)
  local a_ms, a_seq = parts(a)
  local b_ms, b_seq = parts(b)
  if a_ms == b_ms then a_ms, b_ms = a_seq, b_seq end
  if #a_ms ~= #b_ms then return #a_ms < #b_ms end
  return a_ms < b_ms
end
local function behind(id)
  local ms, seq = parts(id)
  if #seq > 15 then return id end -- one entry less is trimmed
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

-- Before Redis 6.2 there is no MINID: deletes entries one by one, from the oldest.
local deleted = 0
for _ = 1, 10 do
  local page = redis.call('XRANGE', STREAM, '-', '+', 'COUNT', 1000)
  for _, entry in ipairs(page) do
    if not below(entry[1], cut) then return deleted end
    deleted = deleted + redis.call('XDEL', STREAM, entry[1])
  end
  if #page < 1000 then break end
end
return deleted
