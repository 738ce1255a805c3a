-- Purpose: repairs the events of a shard, one at a time.
--#needs _time _body _repair _repair_counts
--#defines detail header member lane_member large_body entry

local function is_sent(body) return string.sub(body, 1, 1) == '=' end
local function is_erased(body) return string.sub(body, 1, 1) == '!' end
local function scored(name, id) return redis.call('ZSCORE', key[name], id) end
local function misplaced(name, id, detail) settle('misplaced', name, id, detail, 'ZREM', key[name], id) end

local function is_live(id)
  local body = redis.call('HGET', key.entries, id)
  return body and not is_sent(body)
end

-- Returns why an event is over: 'sent' or 'no body'; nil if it is not.
local function end_of(id)
  local body = redis.call('HGET', key.entries, id)
  return not body and 'no body' or is_sent(body) and 'sent' or nil
end

-- Returns the lane of a header, which is the event's sequence in 16 digits and its lane.
local function lane_of(header)
  return header and string.match(header, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d(.*)$')
end

local function member_of(id, header) return lane_of(header) .. '\0' .. string.sub(header, 1, 16) .. '\0' .. id end

-- Returns the header and the id of a member of a lane; nil if it is not such a member.
local function parse(member)
  local lane, sequence, id = string.match(member, '^(%Z+)%z(%d+)%z(.+)$')
  if lane and #sequence == 16 then return sequence .. lane, id end
end

-- The header decides whether an event has a lane, and its place there.
local function header(_, id, text)
  local over = end_of(id)
  if over then
    settle('leftover', 'headers', id, over, 'HDEL', key.headers, id)
  elseif lane_of(text) == nil or lane_of(text) == '' then
    settle('value', 'headers', id, text, 'HDEL', key.headers, id)
  elseif not redis.call('ZSCORE', key.lanes, member_of(id, text)) then
    settle('unindexed', 'lanes', id, '', 'ZADD', key.lanes, 0, member_of(id, text))
  end
end

local function lane_member(_, member, score)
  local text, id = parse(member)
  local known = id and redis.call('HGET', key.headers, id)
  if not id or end_of(id) or known and known ~= text then
    settle('orphan', 'lanes', id or member, string.gsub(member, '%z', ' '), 'ZREM', key.lanes, member)
  elseif tonumber(score) ~= 0 then
    settle('value', 'lanes', id, score, 'ZADD', key.lanes, 0, member)
  elseif not known then
    settle('unlinked', 'headers', id, '', 'HSET', key.headers, id, text)
  end
end

-- Returns the next event of a lane to be published: the first that was not sent.
local function head_of(lane)
  local offset = 0
  repeat
    local members = redis.call('ZRANGEBYLEX', key.lanes, '[' .. lane .. '\0', '(' .. lane .. '\1', 'LIMIT', offset, 100)
    for _, member in ipairs(members) do
      local text, id = parse(member)
      local known = id and redis.call('HGET', key.headers, id)
      if id and is_live(id) and (not known or known == text) then return id end
    end
    offset = offset + 100
  until #members < 100
end

-- Corrects a large body, and returns what stands in entries then. A body that is lost leaves the digest of nothing, as if it were erased.
local function large(id, stored)
  local kept = is_sent(stored) and string.sub(stored, 1, 41) or ''
  local _, name = staged(string.sub(stored, #kept + 1))
  if not name then return stored end
  local left = redis.call('PTTL', own('body:' .. name))
  if left == -2 then
    stored = kept ~= '' and kept or '!' .. redis.sha1hex('')
    settle('lost', 'entries', id, name, 'HSET', key.entries, id, stored)
    if FIX then redis.call('HDEL', key.bodies, name) end
    return stored
  end
  if left >= 0 then settle('value', 'body', id, left, 'PERSIST', own('body:' .. name)) end
  if redis.call('HGET', key.bodies, name) ~= id then settle('unlinked', 'bodies', name, id, 'HSET', key.bodies, name, id) end
  return stored
end

-- Deletes a large body that no event has.
local function large_body(_, name, id)
  local stored = redis.call('HGET', key.entries, id)
  local _, known = staged(stored and (is_sent(stored) and string.sub(stored, 42) or stored) or '')
  if known == name then return end
  settle('orphan', 'bodies', name, id, 'HDEL', key.bodies, name)
  if FIX then redis.call('UNLINK', own('body:' .. name)) end
end

-- The body decides. An event with = and a digest was sent. An event with its body was not, whatever an index says, and must not
-- be lost. Parked wins over pending, because an operator can re-arm an event, but nobody can take back a publish. In a lane
-- only the head is pending.
local function entry(id, body)
  total.seen = total.seen + 1
  body = large(id, body)
  local pending, parked, sent = scored('pending', id), scored('parked', id), scored('sent', id)
  if is_sent(body) then
    if pending then misplaced('pending', id, 'sent') end
    if parked then misplaced('parked', id, 'sent') end
    if not sent then settle('unindexed', 'sent', id, '', 'ZADD', key.sent, NOW, id) end
    return
  end
  if sent then misplaced('sent', id, 'not sent') end
  if is_erased(body) and not parked then -- there is nothing to publish
    settle('unindexed', 'parked', id, 'erased', 'ZADD', key.parked, NOW, id)
    parked = true
  end
  sum(id, body, parked)
  if parked then
    if pending then misplaced('pending', id, 'parked') end
    return
  end
  local lane = lane_of(redis.call('HGET', key.headers, id))
  local head = lane and lane ~= '' and head_of(lane) or id
  if pending and head ~= id then misplaced('pending', id, 'behind ' .. head) end
  if not pending and head == id then settle('unindexed', 'pending', id, '', 'ZADD', key.pending, NOW, id) end
end

local function member(name, id, score)
  if redis.call('HEXISTS', key.entries, id) == 0 then
    settle('orphan', name, id, '', 'ZREM', key[name], id)
  elseif string.find(string.lower(score), 'inf', 1, true) then
    settle('value', name, id, score, 'ZADD', key[name], NOW, id)
  end
end

local function detail(name, id, value)
  local over = end_of(id)
  if over then
    settle('leftover', name, id, over, 'HDEL', key[name], id)
  elseif name == 'attempts' and (not string.match(value, '^%d+$') or #value > 9) then
    settle('value', name, id, value, 'HDEL', key[name], id)
  end
end
