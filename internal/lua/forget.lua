-- Purpose: makes a shard forget a message, so that it counts as new when it is delivered again: its mark, what is kept of
--          its replies, and the note of an undo that failed.
-- KEYS:    1 void; then those of _outbox.lua, inbox:b, results, results:b, broken and audit
-- ARGV:    1 to 4 see _audit.lua; 5 the digest of the message, 6 its name for the audit
-- Reply:   server time (ms), and d done or u unknown, see _audit.lua
-- Bound:   constant
-- Redis:   6.0
--#needs _time _outbox _owned _audit

local FOUND = 0
for _, name in ipairs({'inbox:a', 'inbox:b'}) do FOUND = FOUND + redis.call('HDEL', shard .. name, ARGV[5]) end
for _, name in ipairs({'results', 'results:b', 'broken'}) do redis.call('HDEL', shard .. name, ARGV[5]) end
answer(ARGV[6], FOUND > 0 and 'd' or 'u')
return finish('forget')
