-- Purpose: shares one sweep of all shards among the running relays: it hands out the next chunk of shards, at most one per pause.
--          The sweep does not wait for a relay that dies with a chunk: the next round hands out the chunk again.
-- KEYS:    1  void
--          2  sweep   hash: at (when the last chunk was handed out, ms), chunk (the next one)
-- ARGV:    1  pause   between two chunks, ms
--          2  chunks  number of chunks
-- Reply:   1  time    server time, ms
--          2  chunk   -1: none yet
--          3  wait    how long until the next chunk, ms
-- Bound:   constant
-- Memory:  runs at maxmemory, see _full.lua
-- Redis:   6.0
--#needs _time _full

local SWEEP, PAUSE, CHUNKS = @SWEEP, tonumber(ARGV[1]), tonumber(ARGV[2])
local NOW = string.format('%.0f', now)
local state = redis.call('HMGET', SWEEP, 'at', 'chunk')
local at, chunk = tonumber(state[1]) or 0, tonumber(state[2]) or 0

if at > now then at = 0 end -- the time comes from a faster clock
local left = at + PAUSE - now
if left > 0 then return {NOW, -1, string.format('%.0f', left)} end
-- A late call does not delay the next chunk, and chunks that were missed are not made up for.
if left > -PAUSE then at = at + PAUSE else at = now end
chunk = chunk % CHUNKS
write_though_full()
redis.call('HSET', SWEEP, 'at', string.format('%.0f', at), 'chunk', string.format('%.0f', chunk + 1))
return {NOW, chunk, string.format('%.0f', at + PAUSE - now)}
