-- Purpose: makes a shard forget a message, so that its next delivery counts as new. It deletes the mark, the kept replies and the
--          note of a rollback failure.
-- KEYS:    1    void
--          2-14 outbox     the keys of the outbox, see outboxKeys in layout.go
--          15   inbox:b
--          16   results
--          17   results:b
--          18   broken
--          19   audit
-- ARGV:    1-4  audit      see _audit.lua
--          5    digest     of the message
--          6    name       of the message, for the audit
-- Reply:   1    time       server time, ms
--          2    letter     d done, u unknown; see _audit.lua
-- Bound:   constant
-- Redis:   6.0
--#needs _time _outbox _owned _audit

local FOUND = 0
for _, name in ipairs({'inbox:a', 'inbox:b'}) do FOUND = FOUND + redis.call('HDEL', shard .. name, ARGV[5]) end
for _, name in ipairs({'results', 'results:b', 'broken'}) do redis.call('HDEL', shard .. name, ARGV[5]) end
answer(ARGV[6], FOUND > 0 and 'd' or 'u')
return finish('forget')
