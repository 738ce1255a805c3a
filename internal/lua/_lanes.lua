-- Purpose: lanes: the events of one ordering key, which are published one after the other.
--
--   lanes    a member for each event of a lane: escaped key, NUL, sequence in 16 digits, NUL, id; all with one score, so that
--            they stand in this order
--   headers  event -> sequence in 16 digits, and escaped key
-- The first event of a lane, its head, is pending or parked. The others wait and are in no other index.
--#needs _time _outbox
--#defines first_of id_of is_behind promoted leave

-- Returns the first member of a lane, or nil.
local function first_of(key)
  return redis.call('ZRANGEBYLEX', LANES, '[' .. key .. '\0', '(' .. key .. '\1', 'LIMIT', 0, 1)[1]
end

local function id_of(member, key) return string.sub(member, #key + 19) end

-- Returns the lane of an event and its member there, or nil.
local function place_of(id)
  local header = redis.call('HGET', HEADERS, id)
  if not header then return nil end
  local key = string.sub(header, 17)
  return key, key .. '\0' .. string.sub(header, 1, 16) .. '\0' .. id
end

-- Reports whether an event must wait behind others of its lane.
local function is_behind(id)
  local key, member = place_of(id)
  return key and first_of(key) ~= member
end

local promoted = {} -- the events that this script made heads

-- Removes an event from its lane, if it has one. If it was the head, the next event is due now, unless that one is parked.
local function leave(id)
  local key, member = place_of(id)
  if not key then return end
  local head = first_of(key)
  redis.call('HDEL', HEADERS, id)
  redis.call('ZREM', LANES, member)
  local first = head == member and first_of(key)
  if not first then return end
  local heir = id_of(first, key)
  if redis.call('ZSCORE', PARKED, heir) then return end
  redis.call('ZADD', PENDING, NOW, heir)
  promoted[#promoted + 1] = heir
end
