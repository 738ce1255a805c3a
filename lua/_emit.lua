-- Purpose: events of procedures; see _events.lua, whose locals it uses. Expects CAPACITY.

-- Makes what a procedure calls to emit an event; emits id, body, id, body …
local function emitter(digest, before, score)
  local emits = {}
  -- An event is a table of CloudEvents attributes and data, or a body as it is to be published, with its id.
  function emits.emit(event, id)
    local n = #emits / 2
    if waiting + before + n + 1 > CAPACITY then error({full = true}, 0) end
    if not id then -- derived, so that a replay makes the same event; in the form of a UUID
      local sum = redis.sha1hex(digest .. ':' .. n)
      id = string.gsub(sum, '^(%x%x%x%x%x%x%x%x)(%x%x%x%x).(%x%x%x).(%x%x%x)(%x%x%x%x%x%x%x%x%x%x%x%x).*$', '%1-%2-8%3-8%4-%5')
    end
    local body = event
    if type(event) == 'table' then
      for _, name in ipairs({'type', 'source'}) do
        if type(event[name]) ~= 'string' then error({err = 'emit: the event has no ' .. name}, 0) end
      end
      local copy = {specversion = '1.0', id = id}
      for name, value in pairs(event) do copy[name] = value end
      id, body = copy.id, cjson.encode(copy)
    end
    if type(id) ~= 'string' or type(body) ~= 'string' or body == '' or string.byte(body) == 61 then
      error({err = 'emit: the event is neither a table of attributes nor a body'}, 0)
    end
    if not enqueue(id, body, score) then error({err = 'emit: the event ' .. id .. ' exists with another body'}, 0) end
    emits[#emits + 1] = id
    emits[#emits + 1] = body
    return id
  end
  return emits
end
