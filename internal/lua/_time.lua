-- Purpose: the server's time in ms, the only clock of the scripts; as text too, which costs less than formatting a number.
--#defines NOW now

local time = redis.call('TIME')
local NOW = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(NOW)
