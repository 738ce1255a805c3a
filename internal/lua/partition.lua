-- Purpose: reads a partition for the holder of its lease, and for nobody else. It first delivers the pending entries of all
--          consumers, one at a time in the order of their ids. Then it delivers new entries. So an entry may be delivered
--          again.
-- KEYS:    1  void
--          2  lease
--          3  stream
--          4  taken
-- ARGV:    1  owner      of the lease; the group has the consumer under the same name
--          2  group
--          3  limit      most new entries
--          4  attempts   deliveries allowed; 0: any number
--          5  take over  1: entries that other consumers left become the owner's, and those consumers are removed
-- Reply:   'lost'     the lease belongs to another owner
--          'old'      entry, deliveries (with this one), fields
--          'used'     entry, deliveries: all that are allowed, so the entry is not delivered
--          'trimmed'  entry: it is gone from the stream, and was acknowledged
--          'new'      entries with their fields
--          'none'     last entry of the stream
-- Bound:   linear in the new entries; at a takeover in the pending entries and in the consumers
-- Redis:   6.0
--#lazy taking(note_taken) _time _taken

local LEASE, STREAM, OWNER, GROUP, PAGE = @LEASE, @STREAM, ARGV[1], ARGV[2], 100

if redis.call('HGET', LEASE, 'owner') ~= OWNER then return {'lost'} end

local function pending(from, count) return redis.pcall('XPENDING', STREAM, GROUP, from, '+', count) end

local head = pending('-', 1)
if head.err then return head end -- such as NOGROUP

-- Notes the owners of pending entries that are to be claimed or acknowledged, except for the caller.
local function note_owners(entries)
  local former, found = {}, false
  for _, entry in ipairs(entries) do
    if entry[2] ~= OWNER then former[entry[2]], found = true, true end
  end
  if not found then return end
  redis.call('XACK', STREAM, GROUP, '0-0') -- no entry has this id; a full server takes the writes after it
  taking().note_taken(GROUP, former)
end

-- Claims all pending entries, so that a former owner can no longer commit them, and removes the other consumers.
local function take_over()
  local from = '-'
  repeat
    local page = pending(from, PAGE)
    note_owners(page)
    local claim = {'XCLAIM', STREAM, GROUP, OWNER, 0}
    for i, entry in ipairs(page) do claim[5 + i] = entry[1] end
    if #page > 0 then
      from = page[#page][1] -- again: before Redis 6.2 a range cannot begin behind an entry
      claim[#claim + 1] = 'JUSTID'
      redis.call(unpack(claim))
    end
  until #page < PAGE
  for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', STREAM, GROUP)) do
    local consumer = {}
    for i = 1, #flat, 2 do consumer[flat[i]] = flat[i + 1] end
    if consumer.name ~= OWNER then redis.call('XGROUP', 'DELCONSUMER', STREAM, GROUP, consumer.name) end
  end
end

if ARGV[5] == '1' then
  take_over()
  head = pending('-', 1)
end

if head[1] then
  note_owners(head)
  local id, deliveries = head[1][1], head[1][4]
  if #redis.call('XRANGE', STREAM, id, id) == 0 then
    redis.call('XACK', STREAM, GROUP, id)
    return {'trimmed', id}
  end
  if ARGV[4] ~= '0' and deliveries >= tonumber(ARGV[4]) then
    redis.call('XCLAIM', STREAM, GROUP, OWNER, 0, id, 'JUSTID')
    return {'used', id, deliveries}
  end
  return {'old', id, deliveries + 1, redis.call('XCLAIM', STREAM, GROUP, OWNER, 0, id)[1][2]}
end

local found = redis.call('XREADGROUP', 'GROUP', GROUP, OWNER, 'COUNT', ARGV[3], 'STREAMS', STREAM, '>')
if found and found[1] then return {'new', found[1][2]} end
local last = redis.call('XREVRANGE', STREAM, '+', '-', 'COUNT', 1)
return {'none', last[1] and last[1][1] or '0-0'}
