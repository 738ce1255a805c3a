-- Purpose: returns the generation of an owner of a partition. Generations are numbered for each scope, source and partition in the
--          first shard of the keyspace.
-- KEYS:    1  void
--          2  inbox:a
--          3  generations
-- ARGV:    1  field        scope, source and partition, separated by NUL
--          2  new          1: a new one; 0: the present one, which is 0 at first
--          3  stored       the generation of a stored position, below which none is returned: a failover may have lost some
-- Reply:   1  time         server time, ms
--          2  generation
-- Bound:   constant
-- Redis:   6.0
--#needs _time _owned

local present = math.max(tonumber(redis.call('HGET', @GENERATIONS, ARGV[1]) or 0), tonumber(ARGV[3]))
if ARGV[2] == '0' then return {NOW, present} end
local generation = present + 1
redis.call('HSET', @GENERATIONS, ARGV[1], string.format('%.0f', generation))
return {NOW, generation}
