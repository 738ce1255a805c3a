-- Purpose: runs the procedures of the configuration inside a commit. A procedure sees a redis of its own: it may use declared keys
-- only, each write leaves its undo first, and calls are counted, because nothing but a shutdown ends a script that has written.
--
-- The configuration provides:
--   procedure(name, redis, KEYS, ARGV, NOW, emit, abort, reject)   composed from the sources of the procedures
--   BUDGET     most calls of Redis by one procedure
--   COMMANDS   for each command that a procedure may call " NAME:first key:last key:step:undo class and digit:arity"
--#needs _time _undo procedure()
--#defines call_procedure

-- Calls the procedure whose name, number of keys, keys and arguments stand at first .. last of ARGV. Its events go to
-- emit_event. Returns its reply, and raises every failure.
local function call_procedure(first, last, emit_event)
  local name, nkeys = ARGV[first], tonumber(ARGV[first + 1])
  local keys, args, declared, calls, specs = {}, {}, {}, 0, {}
  for i = 1, nkeys do
    keys[i] = ARGV[first + 1 + i]
    declared[keys[i]] = true
  end
  for i = first + 2 + nkeys, last do args[#args + 1] = ARGV[i] end

  local function fail(text) error({err = 'procedure ' .. name .. ': ' .. text}, 0) end

  local function spec_of(command)
    local spec = specs[command]
    if spec then return spec end
    local _, colon = string.find(@COMMANDS, ' ' .. command .. ':', 1, true)
    if not colon then fail(command .. ' is not for procedures') end
    local from, to, step, head, arity = string.match(@COMMANDS, '^(%-?%d+):(%-?%d+):(%d+):(%S%d):(%-?%d+)', colon + 1)
    spec = {from = tonumber(from), to = tonumber(to), step = tonumber(step), class = string.byte(head),
      digit = tonumber(string.sub(head, 2)), arity = tonumber(arity)}
    specs[command] = spec
    return spec
  end

  -- Counts and checks a call, and leaves its undo.
  local function admit(call)
    calls = calls + 1
    if calls > @BUDGET then fail('more than ' .. @BUDGET .. ' calls') end
    local command = string.upper(tostring(call[1]))
    local spec = spec_of(command)
    if spec.arity >= 0 and #call ~= spec.arity or #call < -spec.arity then fail(command .. ': wrong number of arguments') end
    for i = spec.from, spec.to < 0 and #call + spec.to or spec.to, spec.step do
      if not declared[call[i + 1]] then fail(command .. ': key ' .. tostring(call[i + 1]) .. ' was not declared') end
    end
    local why = remember(spec.class, spec.digit, call, 1, #call)
    if why then fail(command .. ' ' .. why) end
  end

  local guarded = {sha1hex = redis.sha1hex, error_reply = redis.error_reply, status_reply = redis.status_reply}
  function guarded.pcall(...)
    local call = {...}
    admit(call)
    return redis.pcall(unpack(call))
  end
  function guarded.call(...)
    local reply = guarded.pcall(...)
    if type(reply) == 'table' and reply.err then error(reply, 0) end
    return reply
  end
  local function abort(reason) error({abort = tostring(reason)}, 0) end
  local function reject(reason) error({abort = tostring(reason), permanent = true}, 0) end

  return procedure(name, guarded, keys, args, now, emit_event, abort, reject)
end
