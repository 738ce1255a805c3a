-- Purpose: lists events of a shard, each with all that the shard holds about it. It leaves out members without a body.
-- KEYS:    1    void
--          2-14 outbox       the keys of the outbox, see outboxKeys in layout.go
-- ARGV:    1    what         pending, due, expired (leases), parked, blocking (parked, with events behind them in their lanes)
--                            or sent (by score), waiting (by lane), or ids
--          2    limit        most members to read
--          3    score        the page begins behind this score and member;
--          4    member       empty: at the beginning
--          5    max          highest score; empty: any
--          6    state        letter of a state: leave out events in other states; empty: leave out none
--          7    bodies       1: return the bodies
--          8    class        of the last failure: leave out events with another one; empty: leave out none
--          9-   id           for ids: the ids
-- Reply:   1    time         server time, ms
--          2    score        the next page begins behind this score and member;
--          3    member       empty: there is no next page
--          4    members      number of members read
--          then for each event
--          +1   id
--          +2   state        p pending, l leased, w waiting, s sent, k parked
--          +3   score        as the index holds it; empty: none
--          +4   attempts
--          +5   lease        see _lease.lua; empty: none
--          +6   header       see _lanes.lua
--          +7   history      see _errors.lua
--          +8   destination  of a re-arm
--          +9   has body     1 if there is a body, else 0
--          +10  body         or the digest of an erased one
--          +11  head         of its lane; empty: it is the head, or in no lane
--          +12  behind       number of events behind the head of a lane; else 0
--          +13  scheduled    1: a scheduled event that no relay has claimed; else 0
-- Bound:   linear in the members read, and about 1 MiB of bodies
-- Redis:   6.0
--#needs _time _full _outbox _lanes _errors _body _park _lease

local WHAT, LIMIT, SCORE, MEMBER, ONLY, BODIES, CLASS = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[6], ARGV[7] == '1', ARGV[8]
local MAX = ({due = now, expired = now - @LEASED})[WHAT] or tonumber(ARGV[5]) or ONLY == 'l' and -1 or math.huge
local MOST_BYTES = 1048576
local index = ({pending = PENDING, due = PENDING, expired = PENDING, parked = PARKED, blocking = PARKED, sent = SENT})[WHAT]

-- Compares as sorted sets do. Lua may compare strings by the server's locale.
local function is_before(a, b)
  for i = 1, math.min(#a, #b) do
    local left, right = string.byte(a, i), string.byte(b, i)
    if left ~= right then return left < right end
  end
  return #a < #b
end

-- Returns the rank of the first member behind the given one, which may be gone.
local function rank_behind(score, member)
  local low, high = 0, redis.call('ZCARD', index)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = redis.call('ZRANGE', index, middle, middle, 'WITHSCORES')
    local found_score = tonumber(found[2])
    local behind = found_score > score or found_score == score and is_before(member, found[1])
    if behind then high = middle else low = middle + 1 end
  end
  return low
end

-- Returns the head of an event's lane, empty if that is the event itself, and the number of events behind it if it is.
local function lane_of(id, header)
  local key = string.sub(header, 17)
  local first = first_of(key)
  local head = first and id_of(first, key)
  if head ~= id then return head or '', 0 end
  return '', redis.call('ZLEXCOUNT', LANES, '(' .. first, '(' .. key .. '\1')
end

-- Returns those of the ids that have events behind them in their lanes, and their places.
local function blocking(ids, places)
  local heads, of = {}, {}
  local headers = #ids > 0 and redis.call('HMGET', HEADERS, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    local _, behind = nil, 0
    if headers[i] then _, behind = lane_of(id, headers[i]) end
    if behind > 0 then heads[#heads + 1], of[#of + 1] = id, places[i] end
  end
  return heads, of
end

-- Returns the ids of the page, the score and member of each, those of the last member read if the page is full, and the number of
-- members read.
local function members()
  local ids, places = {}, {}
  if WHAT == 'ids' then
    for i = 9, #ARGV do ids[#ids + 1] = ARGV[i] end
    return ids, places, false, #ids
  end
  if WHAT == 'waiting' then
    local page = redis.call('ZRANGEBYLEX', LANES, MEMBER == '' and '-' or '(' .. MEMBER, '+', 'LIMIT', 0, LIMIT)
    for i, member in ipairs(page) do
      ids[i], places[i] = string.sub(member, string.find(member, '\0', 1, true) + 18), {'0', member}
    end
    return ids, places, #page == LIMIT and places[LIMIT], #ids
  end
  local first = SCORE ~= '' and rank_behind(tonumber(SCORE), MEMBER) or WHAT == 'due' and redis.call('ZCOUNT', PENDING, '-inf', '(0') or 0
  local page = redis.call('ZRANGE', index, first, first + LIMIT - 1, 'WITHSCORES')
  for i = 1, #page, 2 do
    if tonumber(page[i + 1]) > MAX then return ids, places, false, #ids end
    ids[#ids + 1] = page[i]
    places[#places + 1] = {page[i + 1], page[i]} -- exactly: the score of a held event has a fraction
  end
  local last, read = #page == 2 * LIMIT and places[LIMIT], #ids
  if WHAT == 'blocking' then ids, places = blocking(ids, places) end
  return ids, places, last, read
end

-- Returns those of the ids that have the requested class, and their places.
local function of_class(ids, places)
  local meant, of = {}, {}
  for i, history in ipairs(redis.call('HMGET', ERRORS, unpack(ids))) do
    if class_in(history) == CLASS then meant[#meant + 1], of[#of + 1] = ids[i], places[i] end
  end
  return meant, of
end

-- Returns the state of an event, its score, and its lease.
local function state_of(id, body)
  local score = redis.call('ZSCORE', PARKED, id)
  if string.byte(body, 1) == @SENT_MARK then return 's', redis.call('ZSCORE', SENT, id) end
  if score then return 'k', score end
  score = redis.call('ZSCORE', PENDING, id)
  if not score then return 'w' end
  if tonumber(score) >= 0 then return 'p', score end
  return score + @LEASED > now and 'l' or 'p', score, string.format('%.17g', tonumber(score))
end

-- Returns the body of a stored value, or the digest of an erased one; and 1 if there is a body, else 0.
local function content(body)
  local first = string.byte(body, 1)
  if first == @ERASED_MARK then return string.sub(body, 2), 0 end
  if first == @SENT_MARK then body = string.sub(body, 42) end
  return BODIES and body_of(body) or '', body == '' and 0 or 1
end

local ids, places, last, read = members()
local reply = {NOW, last and last[1] or '', last and last[2] or '', read}
if CLASS ~= '' and #ids > 0 then ids, places = of_class(ids, places) end
if #ids == 0 then return reply end
local bodies, attempts = redis.call('HMGET', ENTRIES, unpack(ids)), redis.call('HMGET', ATTEMPTS, unpack(ids))
local headers = redis.call('HMGET', HEADERS, unpack(ids))
local errors, routes = redis.call('HMGET', ERRORS, unpack(ids)), redis.call('HMGET', ROUTES, unpack(ids))
local size = 0
for i, id in ipairs(ids) do
  local stored = bodies[i]
  local state, score, lease = nil, nil, nil
  if stored then state, score, lease = state_of(id, stored) end
  if state and (ONLY == '' or ONLY == state) then
    local body, there = content(stored)
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = id, state, score or '', attempts[i] or lease and '1' or '0'
    reply[n + 5], reply[n + 6], reply[n + 7], reply[n + 8] = lease or '', headers[i], errors[i], routes[i]
    reply[n + 9], reply[n + 10], reply[n + 11], reply[n + 12] = there, body, '', 0
    if headers[i] then reply[n + 11], reply[n + 12] = lane_of(id, headers[i]) end
    reply[n + 13] = state == 'p' and attempts[i] == '0' and 1 or 0
    size = size + #body
  end
  if size > MOST_BYTES and i < #ids and WHAT ~= 'ids' then
    reply[2], reply[3] = places[i][1], places[i][2]
    break
  end
end
return reply
