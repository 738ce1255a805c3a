-- Purpose: refuses a shard of another keyspace.
--#needs _time _outbox
--#defines identity

local identity = redis.call('HGET', INBOX, 'id')
if identity and identity ~= @IDENTITY then return {NOW, 'identity', identity} end
