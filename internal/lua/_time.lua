-- Purpose: the server's time in ms, the only clock of the scripts, as a number and as text.
-- Making the text of the reply costs less than formatting the number.
--#defines NOW now

local time = redis.call('TIME')
local NOW = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now = tonumber(NOW)
