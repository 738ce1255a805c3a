-- Purpose: runs guarded reads within a limit, and computes the digest that tells whether a reply has changed. The digest
-- of a reply costs about as much as the read itself.
--
-- A reply weighs its bytes, and 64 for each element, because an element costs as much. All guarded reads of a transaction
-- share the limit.
--
-- The head of a read says whether the order of the reply's elements means anything:
--   o  it does
--   m  members without an order
--   p  pairs without an order
--#needs _reply
--#defines guarded_read conflict

local PER_ELEMENT = 64
local TWO_48 = 281474976710656

-- Reads of which another command returns the size beforehand, as READ:COMMAND:unit. The units are:
--   b  bytes
--   e  elements
--   p  pairs of elements
--   r  elements at a range of positions
--   s  elements in a range of scores
--   x  entries of a whole stream
local COUNTED = ' GET:STRLEN:b HGETALL:HLEN:p HKEYS:HLEN:e HVALS:HLEN:e SMEMBERS:SCARD:e SUNION:SCARD:e LRANGE:LLEN:r ZRANGE:ZCARD:r ' ..
  'ZREVRANGE:ZCARD:r ZRANGEBYSCORE:ZCOUNT:s XRANGE:XLEN:x XREVRANGE:XLEN:x '

-- Miniredis has neither library. The digest without them is as good, but slower.
local _, pack = pcall(function() return cmsgpack.pack end)
if type(pack) ~= 'function' then pack = encode end
local _, split = pcall(function() return struct.unpack end)
if type(split) ~= 'function' then
  split = function(_, sha) return tonumber(string.sub(sha, 1, 12), 16), tonumber(string.sub(sha, 13, 24), 16), 0, 0 end
end

-- Reports whether the reply of the read at ARGV[first .. last] weighs more than room, if the server knows that without the
-- read. If the command fails here, because of a type or a right, the weight is unknown.
local function known_too_large(first, last, room)
  local counter, kind = string.match(COUNTED, ' ' .. string.upper(ARGV[first]) .. ':(%u+):(%l)')
  if not counter then return false end
  local key, from, to, options = ARGV[first + 1], ARGV[first + 2], ARGV[first + 3], last - first > 3
  if options and kind ~= 'e' and (last > first + 4 or string.upper(ARGV[last]) ~= 'WITHSCORES') then return false end
  local count
  if kind == 's' then count = redis.pcall(counter, key, from, to) else count = redis.pcall(counter, key) end
  if type(count) ~= 'number' then return false end
  if kind == 'b' then return count + PER_ELEMENT > room end
  if kind == 'r' then
    from, to = tonumber(from), tonumber(to)
    if not from or not to then return false end
    if from < 0 then from = math.max(count + from, 0) end
    if to < 0 then to = count + to end
    count = math.min(to, count - 1) - from + 1
  elseif kind == 'x' and (not string.find(from, '^[-+]$') or not string.find(to, '^[-+]$')) then
    return false
  end
  return count * PER_ELEMENT * (kind == 'p' and 2 or 1) > room
end

-- Returns the weight of a reply. It stops as soon as the weight exceeds room, and returns the weight so far.
local function weigh(reply, room)
  if type(reply) == 'string' then return PER_ELEMENT + #reply end
  local size = PER_ELEMENT
  if type(reply) == 'table' then
    for i = 1, #reply do
      local element = reply[i]
      size = size + (type(element) == 'string' and PER_ELEMENT + #element or weigh(element, room - size))
      if size > room then return size end
    end
  end
  return size
end

-- Returns the digest of a reply whose order means nothing, and its weight: a hash changes its order after mere reads. The digest
-- is the number of elements, and four sums of which each adds 24 bits of their SHA-1s. A sum, unlike an exclusive or, counts
-- an element that occurs twice. A pair has one SHA-1, so that values cannot change places.
local function digest_unordered(reply, step, room)
  local count, sha1hex, prefixes = #reply, redis.sha1hex, {}
  local size, sum1, sum2, sum3, sum4 = PER_ELEMENT * (count + 1), 0, 0, 0, 0
  if size > room then return nil end
  for i = 1, count, step do
    local text = reply[i]
    size = size + #text
    if step == 2 then
      local value, prefix = reply[i + 1], prefixes[#text]
      if not prefix then
        prefix = #text .. ':'
        prefixes[#text] = prefix
      end
      size, text = size + #value, prefix .. text .. value
    end
    if size > room then return nil end
    local part1, part2, part3, part4 = split('>I6I6I6I6', sha1hex(text))
    sum1, sum2, sum3, sum4 = (sum1 + part1) % TWO_48, (sum2 + part2) % TWO_48, (sum3 + part3) % TWO_48, (sum4 + part4) % TWO_48
  end
  return string.format('%d:%.0f:%.0f:%.0f:%.0f', count, sum1, sum2, sum3, sum4), size
end

-- Runs the read at ARGV[first .. last] with an order of o, m or p. Returns the reply, its digest and its weight: no digest if it
-- weighs more than room, an empty one if the reply has none. The digest of an error is that of its first word, because the
-- rest names the script.
local function guarded_read(order, first, last, room)
  if known_too_large(first, last, room) then return nil end
  local reply = redis.pcall(unpack(ARGV, first, last))
  if type(reply) == 'table' and reply.err then
    return reply, redis.sha1hex('-' .. string.match(reply.err, '^%S*')), PER_ELEMENT
  end
  if type(reply) == 'number' and math.abs(reply) >= 9007199254740992 then
    return reply, '', PER_ELEMENT -- a Lua number cannot hold it exactly
  end
  if order ~= 'o' and type(reply) == 'table' then
    local digest, size = digest_unordered(reply, order == 'p' and 2 or 1, room)
    return reply, digest, size
  end
  local size = weigh(reply, room)
  if size > room then return nil end
  return reply, redis.sha1hex(pack(reply)), size
end

-- Runs the guarded reads again that begin at ARGV[arg]. Returns the index of the first that has changed, or nil and the index
-- of the argument behind them. A reply that has grown beyond the limit has changed.
local function conflict(arg, guards)
  local room = @GUARD_BYTES
  for i = 1, guards do
    local head = ARGV[arg]
    local last = arg + 1 + tonumber(string.sub(head, 2))
    local _, digest, size = guarded_read(string.sub(head, 1, 1), arg + 2, last, room)
    if digest ~= ARGV[arg + 1] then return i end
    room, arg = room - size, last + 1
  end
  return nil, arg
end
