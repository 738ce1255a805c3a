-- Purpose: refuses a shard of another keyspace. Uses the names of _outbox.lua; expects IDENTITY.

local identity = redis.call('HGET', INBOX, 'id')
if identity and identity ~= IDENTITY then return {NOW, 'identity', identity} end
