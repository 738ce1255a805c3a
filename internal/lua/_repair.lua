-- Purpose: the parts that every repair needs. It names the keys of the shard, checks the type of each, and reports and corrects
-- findings.
--#needs _time _meta
--#defines FIX LIMIT key exists sound INBOX_A INBOX_B outbox reply report settle types

local FIX, LIMIT = ARGV[1] == 'fix', tonumber(ARGV[4])

local wanted = {
  {'void', 'none'}, {'inbox:a', 'hash'}, {'inbox:b', 'hash'}, {'results', 'hash'}, {'results:b', 'hash'}, {'entries', 'hash'},
  {'pending', 'zset'}, {'parked', 'zset'}, {'sent', 'zset'}, {'attempts', 'hash'}, {'errors', 'hash'},
  {'broken', 'hash'}, {'seq', 'string'}, {'repair', 'hash'}, {'due', 'zset'}, {'decided', 'zset'},
  {'headers', 'hash'}, {'lanes', 'zset'}, {'routes', 'hash'}, {'counts', 'hash'}, {'parked:by', 'hash'}, {'audit', 'stream'},
  {'sweep', 'hash'}, {'pauses', 'hash'}, {'bodies', 'hash'}, {'positions', 'hash'},
  {'generations', 'hash'},
}
local key, exists, sound = {}, {}, {} -- by name; sound: it has its type, or is not there
for i, want in ipairs(wanted) do
  local found = redis.call('TYPE', KEYS[i])
  found = type(found) == 'table' and found.ok or found
  key[want[1]], exists[want[1]], sound[want[1]], want[3] = KEYS[i], found ~= 'none', found == 'none' or found == want[2], found
end
local INBOX_A, INBOX_B = key['inbox:a'], key['inbox:b']

-- The owner of another keyspace repairs its shards itself.
if sound['inbox:a'] and sound['inbox:b'] then
  local meta = redis.call('HGET', INBOX_A, 'id') or not exists['inbox:a'] and redis.call('HGET', INBOX_B, 'id')
  if meta and identity_in(meta) ~= @IDENTITY then return {NOW, 'identity', identity_in(meta)} end
end

-- If one of these has another type, nothing says what belongs into the others.
local outbox = sound['inbox:a'] and sound.entries and sound.pending and sound.parked and sound.sent and sound.headers and sound.lanes and sound.bodies

local reply = {NOW, -1, '0', {}}
local function report(kind, name, id, detail, fixed)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5] = kind, name, id, detail, fixed and 1 or 0
end

-- Reports a finding. If FIX is set, corrects it by a command first.
local function settle(kind, name, id, detail, ...)
  if FIX then redis.call(...) end
  report(kind, name, id, detail, FIX)
end

local function types()
  for _, want in ipairs(wanted) do
    if not sound[want[1]] then report('type', want[1], '', want[3] .. ' instead of ' .. want[2]) end
  end
  local seq = exists.seq and sound.seq and redis.call('GET', key.seq)
  if seq and (not string.match(seq, '^%-?%d+$') or #seq > 18) then report('type', 'seq', '', 'no integer') end
end
