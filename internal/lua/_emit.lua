-- Purpose: lets procedures emit events.
--#needs _events
--#defines emitter

-- Returns the head of an event from its options: nil, or a table with key (ordered) or at (scheduled, ms).
local function head_of(options)
  if options == nil then return '' end
  if type(options) ~= 'table' then error({err = 'emit: the options are no table'}, 0) end
  local key, at = options.key, options.at
  if key ~= nil and at ~= nil then error({err = 'emit: an event is ordered or scheduled, not both'}, 0) end
  if at ~= nil then
    if type(at) ~= 'number' or at < 0 or at >= 253402300800000 then error({err = 'emit: at is no time in ms, of the years 1970 to 9999'}, 0) end
    return 'a' .. string.format('%.0f', at)
  end
  if key == nil then return '' end
  if type(key) ~= 'string' or key == '' or #key > 256 then error({err = 'emit: key is no text of 1 to 256 bytes'}, 0) end
  return 'k' .. string.gsub(string.gsub(key, '%%', '%%25'), '%z', '%%00')
end

-- cjson rounds a number to 14 digits. Returns a copy of a value that has a text in place of each longer integer: a mark and the digits.
local function spelled(value, mark)
  if type(value) == 'number' and math.abs(value) >= 1e14 and math.abs(value) < @TWO_53 and value % 1 == 0 then
    return mark .. string.format('%.0f', value)
  end
  if type(value) ~= 'table' then return value end
  local copy = setmetatable({}, getmetatable(value))
  for key, element in pairs(value) do copy[key] = spelled(element, mark) end
  return copy
end

-- Returns a table whose function emit a procedure calls. The table also lists id, head and body of each event.
local function emitter(digest, score)
  local emits = {}

  local function add(id, head, body)
    local ok, result, full = pcall(enqueue, id, head, body, score)
    if not ok or full then emits.failed = ok and {full = full} or result end
    if emits.failed then error(emits.failed, 0) end
    if not result then error({err = 'emit: the event ' .. id .. ' exists with another body'}, 0) end
  end

  -- An event is a table of CloudEvents attributes and data, or a body as it is to be published, with its id.
  function emits.emit(event, id, options)
    local number, head, derived = #emits / 3, head_of(options), not id
    local sha = redis.sha1hex(digest .. ':' .. number)
    if derived then -- derived, so that a replay makes the same event; in the form of a UUID
      id = string.gsub(sha, '^(%x%x%x%x%x%x%x%x)(%x%x%x%x).(%x%x%x).(%x%x%x)(%x%x%x%x%x%x%x%x%x%x%x%x).*$', '%1-%2-8%3-8%4-%5')
    end
    local body = event
    if type(event) == 'table' then
      for _, name in ipairs({'type', 'source'}) do
        if type(event[name]) ~= 'string' then error({err = 'emit: the event has no ' .. name}, 0) end
      end
      local copy = {specversion = '1.0', id = id}
      for name, value in pairs(event) do copy[name] = value end
      derived = derived and copy.id == id
      id, body = copy.id, string.gsub(cjson.encode(spelled(copy, sha)), '"' .. sha .. '(%-?%d+)"', '%1')
    end
    if type(id) ~= 'string' or type(body) ~= 'string' or body == '' or string.find(body, '^[+=!~]') then
      error({err = 'emit: the event is neither a table of attributes nor a body'}, 0)
    end
    if not derived then body = '+' .. body end
    add(id, head, body)
    for _, part in ipairs({id, head, body}) do emits[#emits + 1] = part end
    return id
  end
  return emits
end
