-- Purpose: the server's time in ms, the only clock that scripts go by.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local NOW = string.format('%.0f', now)
