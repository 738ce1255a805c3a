-- Purpose: reads a partition for the holder of its lease, and for nobody else. What is pending comes first, whoever it
--          is pending for, one entry at a time in the order of ids; then new entries. So it may be sent again.
-- KEYS:    1 void, 2 lease, 3 stream
-- ARGV:    1 owner of the lease, who is the consumer, 2 group, 3 most new entries, 4 deliveries allowed (0: any number),
--          5 1 to take over what others left: entries become the owner's, and consumers go
-- Reply:   'lost' (the lease is another's); 'old', entry, deliveries (this one included) and fields; 'used', entry and
--          deliveries (all that are allowed, so it is not delivered); 'trimmed' and entry (acknowledged; it is gone from
--          the stream); 'new', entries and fields; or 'none' and the last entry of the stream
-- Bound:   linear in the new entries; at a takeover in those pending and in the consumers
-- Redis:   6.0

local LEASE, STREAM, OWNER, GROUP, PAGE = @LEASE, @STREAM, ARGV[1], ARGV[2], 100

if redis.call('HGET', LEASE, 'owner') ~= OWNER then return {'lost'} end

local function pending(from, count) return redis.pcall('XPENDING', STREAM, GROUP, from, '+', count) end

local head = pending('-', 1)
if head.err then return head end -- such as NOGROUP

-- Nothing that a former owner still has in hand can commit behind this.
local function take_over()
  local from = '-'
  repeat
    local page = pending(from, PAGE)
    local claim = {'XCLAIM', STREAM, GROUP, OWNER, 0}
    for i, p in ipairs(page) do claim[5 + i] = p[1] end
    if #page > 0 then
      from = page[#page][1] -- once more: before Redis 6.2 a range cannot begin behind it
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
