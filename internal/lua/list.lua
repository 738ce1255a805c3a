-- Purpose: lists events of a shard, each with all that is known about it. Members without a body are left out.
-- KEYS:    1 void; then those of _outbox.lua
-- ARGV:    1 of what: pending, due, parked, sent (by score), waiting (by lane), or ids; 2 most members to look at; 3 and 4
--          score and member behind which to begin (empty: at the beginning); 5 highest score (empty: any); 6 a state's
--          letter: what is in another is left out (empty: nothing is); 7 1: with bodies; then the ids
-- Reply:   server time (ms), score and member behind which the next page begins (empty: there is none), then of each
--          event: id, state (p pending, l leased, w waiting, s sent, k parked), score (ms, empty: none), attempts, lease,
--          header, history, destination of a re-arm, 1 if there is a body, body (or the digest of one that was erased)
-- Bound:   linear in the members looked at, and about 1 MiB of bodies
-- Redis:   6.0
--#needs _time _full _outbox _lanes _errors _park _lease

local WHAT, LIMIT, SCORE, MEMBER, ONLY, BODIES = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[6], ARGV[7] == '1'
local MAX = WHAT == 'due' and now or tonumber(ARGV[5]) or math.huge
local MOST_BYTES = 1048576
local index = ({pending = PENDING, due = PENDING, parked = PARKED, sent = SENT})[WHAT]

local function ms(score) return string.format('%.0f', tonumber(score)) end

-- Compares as sorted sets do; strings in Lua may be compared by the server's locale.
local function is_before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- The rank of the first member behind the given one, which may have gone.
local function rank_behind(score, member)
  local low, high = 0, redis.call('ZCARD', index)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = redis.call('ZRANGE', index, middle, middle, 'WITHSCORES')
    local s = tonumber(found[2])
    local behind = s > score or s == score and is_before(member, found[1])
    if behind then high = middle else low = middle + 1 end
  end
  return low
end

-- The page's members: ids, and the place behind each. Whether it was full.
local function members()
  local ids, places = {}, {}
  if WHAT == 'ids' then
    for i = 8, #ARGV do ids[#ids + 1] = ARGV[i] end
    return ids, places, false
  end
  if WHAT == 'waiting' then
    local page = redis.call('ZRANGEBYLEX', LANES, MEMBER == '' and '-' or '(' .. MEMBER, '+', 'LIMIT', 0, LIMIT)
    for i, member in ipairs(page) do
      ids[i], places[i] = string.sub(member, string.find(member, '\0', 1, true) + 18), {'0', member}
    end
    return ids, places, #page == LIMIT
  end
  local first = SCORE == '' and 0 or rank_behind(tonumber(SCORE), MEMBER)
  local page = redis.call('ZRANGE', index, first, first + LIMIT - 1, 'WITHSCORES')
  for i = 1, #page, 2 do
    if tonumber(page[i + 1]) > MAX then return ids, places, false end
    ids[#ids + 1] = page[i]
    places[#places + 1] = {page[i + 1], page[i]} -- exactly: a held one stands between two ms
  end
  return ids, places, #page == 2 * LIMIT
end

local function state_of(id, body, lease)
  local at = redis.call('ZSCORE', PARKED, id)
  if string.byte(body) == @SENT_MARK then return 's', redis.call('ZSCORE', SENT, id) end
  if at then return 'k', at end
  at = redis.call('ZSCORE', PENDING, id)
  if not at then return 'w' end
  return lease and tonumber(at) > now and 'l' or 'p', at
end

-- What is left of a stored body for a reader, or of an erased one the digest; and whether there is one.
local function content(body)
  local first = string.byte(body)
  if first == @ERASED_MARK then return string.sub(body, 2), 0 end
  if first == @SENT_MARK then body = string.sub(body, 42) end
  return BODIES and body or '', body == '' and 0 or 1
end

local ids, places, full = members()
if #ids == 0 then return {NOW, '', ''} end
local reply = {NOW, '', ''}
local bodies, attempts = redis.call('HMGET', ENTRIES, unpack(ids)), redis.call('HMGET', ATTEMPTS, unpack(ids))
local leases, headers = redis.call('HMGET', LEASES, unpack(ids)), redis.call('HMGET', HEADERS, unpack(ids))
local errors, routes = redis.call('HMGET', ERRORS, unpack(ids)), redis.call('HMGET', ROUTES, unpack(ids))
local size, last = 0, #ids
for i, id in ipairs(ids) do
  local stored = bodies[i]
  local state, at = nil, nil
  if stored then state, at = state_of(id, stored, leases[i]) end
  if state and (ONLY == '' or ONLY == state) then
    local body, there = content(stored)
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = id, state, at and ms(at) or '', attempts[i] or leases[i] and '1' or '0'
    reply[n + 5], reply[n + 6], reply[n + 7], reply[n + 8] = leases[i] or '', headers[i] or '', errors[i] or '', routes[i] or ''
    reply[n + 9], reply[n + 10] = there, body
    size = size + #body
  end
  if size > MOST_BYTES and WHAT ~= 'ids' then
    full, last = full or i < #ids, i
    break
  end
end
if full then reply[2], reply[3] = places[last][1], places[last][2] end
return reply
