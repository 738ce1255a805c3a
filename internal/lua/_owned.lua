-- Purpose: refuses a shard of another keyspace.
--#needs _time _meta
--#defines meta

local meta = redis.call('HGET', @INBOX_A, 'id')
if meta and identity_in(meta) ~= @IDENTITY then return {NOW, 'identity', identity_in(meta)} end
