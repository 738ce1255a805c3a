-- Purpose: the relays that run share one sweep of all shards: hands out the next chunk of them, at most one a pause.
--          Who is given a chunk and dies is not waited for: the chunk comes round again.
-- KEYS:    1 void, 2 sweep (hash: at, when the last chunk was handed out, in ms; chunk, the next one)
-- ARGV:    1 pause (ms) between two chunks, 2 number of chunks
-- Reply:   server time (ms), the chunk, or -1, and how long (ms) until the next one
-- Bound:   constant
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full

local SWEEP, PAUSE, CHUNKS = @SWEEP, tonumber(ARGV[1]), tonumber(ARGV[2])
local NOW = string.format('%.0f', now)
local state = redis.call('HMGET', SWEEP, 'at', 'chunk')
local at, chunk = tonumber(state[1]) or 0, tonumber(state[2]) or 0

if at > now then at = 0 end -- of a faster clock
local left = at + PAUSE - now
if left > 0 then return {NOW, -1, string.format('%.0f', left)} end
-- The pace is kept by the clock, not by who asks late; what was missed is not made up for.
if left > -PAUSE then at = at + PAUSE else at = now end
chunk = chunk % CHUNKS
write_though_full()
redis.call('HSET', SWEEP, 'at', string.format('%.0f', at), 'chunk', string.format('%.0f', chunk + 1))
return {NOW, chunk, string.format('%.0f', at + PAUSE - now)}
