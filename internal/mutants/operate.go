package main

// operateMutants break what operators rely on.
var operateMutants = []Mutant{
	{
		Name: "operate-ignores-the-cut-off", File: "lua/rearm.lua", Package: "outbox", Test: "^TestCutoff$/^redis$",
		Old: `if cutoff and tonumber(parked) > cutoff then return 'n' end`, New: ``,
		Why: "an event that parks at once is re-armed for ever",
	},
	{
		Name: "operate-rearms-what-is-not-parked", File: "lua/rearm.lua", Package: "outbox", Test: "^TestRearm$/^redis$",
		Old: `if not parked or string.byte(body) == 61 then`, New: `if string.byte(body) == 61 then`,
		Why: "an event that a relay has in hand is due for another",
	},
	{
		Name: "operate-rearms-erased", File: "lua/rearm.lua", Package: "outbox", Test: "^TestErase$/^redis$",
		Old: `if string.byte(body) == 33 then return 'e' end`, New: ``,
		Why: "a digest is published in the place of a body",
	},
	{
		Name: "operate-overtakes-the-lane", File: "lua/rearm.lua", Package: "outbox", Test: "^TestRearmKeepsOrder$/^redis$",
		Old: `if not is_behind(id) then redis.call('ZADD', PENDING, NOW, id) end`, New: `redis.call('ZADD', PENDING, NOW, id)`,
		Why: "what is re-armed goes out before what came before it",
	},
	{
		Name: "operate-rearms-into-a-full-outbox", File: "lua/rearm.lua", Package: "outbox", Test: "^TestRearmIntoFullOutbox$/^redis$",
		Old: `if events >= CAPACITY or bytes + #body > OUTBOX_BYTES then return 'f' end`, New: ``,
		Why: "an operator closes the shard to the service",
	},
	{
		Name: "operate-without-a-record", File: "lua/_audit.lua", Package: "outbox", Test: "^TestFilter$/^redis$",
		Old: `if done > 0 then`, New: `if false then`,
		Why: "nobody knows who did it",
	},
	{
		Name: "operate-twice-after-a-lost-answer", File: "lua/_audit.lua", Package: "outbox", Test: "^TestLostAnswer$/^redis$",
		Old: `if field.operation == OPERATION and field.call == CALL then`, New: `if false then`,
		Why: "an event that parked meanwhile is re-armed once more, and the operator is told another tale",
	},
	{
		Name: "operate-without-a-name", File: "outbox/store.go", Package: "outbox", Test: "^TestActsNeedAName$",
		Old: `case s.operator == "":`, New: `case false:`,
		Why: "the audit names nobody",
	},
	{
		Name: "operate-follows-a-dead-canary", File: "outbox/campaign.go", Package: "outbox", Test: "^TestCampaign$",
		Old: `if c.tooMany(state.ParkedAgain) || over && c.tooMany(state.ParkedAgain+state.Trying) {`, New: `if false {`,
		Why: "all are re-armed, to park again",
	},
	{
		Name: "operate-goes-on-among-failures", File: "outbox/campaign.go", Package: "outbox", Test: "^TestCampaign$",
		Old: `if c.tooMany(c.result.ParkedAgain) {`, New: `if false {`,
		Why: "an operation is not stopped by what goes wrong behind its canary",
	},
	{
		Name: "operate-discard-blocks-the-lane", File: "lua/discard.lua", Package: "outbox", Test: "^TestDiscard$/^redis$",
		Old: "  leave(id)\n", New: "",
		Why: "a lane waits for ever for what was removed",
	},
	{
		Name: "operate-erase-keeps-the-body", File: "lua/erase.lua", Package: "outbox", Test: "^TestErase$/^redis$",
		Old: `'!' .. redis.sha1hex(body))`, New: `'!' .. redis.sha1hex(body) .. body)`,
		Why: "what was to be erased is still there",
	},
	{
		Name: "operate-erase-keeps-sent-bodies", File: "lua/erase.lua", Package: "outbox", Test: "^TestErase$/^redis$",
		Old: `string.sub(body, 1, 41))`, New: `string.sub(body, 1))`,
		Why: "what was to be erased is still there, and is replayed",
	},
	{
		Name: "operate-erase-keeps-quotations", File: "lua/erase.lua", Package: "outbox", Test: "^TestErase$/^redis$",
		Old: "  redis.call('HDEL', ERRORS, id)\n", New: "",
		Why: "an error that quotes the body keeps it",
	},
	{
		Name: "operate-erase-under-a-lease", File: "lua/erase.lua", Package: "outbox", Test: "^TestErase$/^redis$",
		Old: `if is_leased(id) then return 'l' end`, New: ``,
		Why: "a relay publishes what the operator was told is gone",
	},
	{
		Name: "operate-erase-miscounts", File: "lua/erase.lua", Package: "outbox", Test: "^TestErase$/^redis$",
		Old: `tally('', 'erased', 1)`, New: `tally(body, 'erased', 1)`,
		Why: "the overview speaks of events that nobody finds",
	},
	{
		Name: "operate-replays-what-it-sent-again", File: "lua/replay.lua", Package: "outbox", Test: "^TestReplayCutoff$/^redis$",
		Old: `if tonumber(at) > cutoff then return 'n' end`, New: ``,
		Why: "a replay beside a fast relay never ends",
	},
	{
		Name: "operate-imports-twice", File: "lua/import.lua", Package: "outbox", Test: "^TestExportImport$/^redis$",
		Old: `if old then return`, New: `if false then return`,
		Why: "a file that is read again brings back what was sent",
	},
	{
		Name: "operate-listing-loses-its-place", File: "lua/list.lua", Package: "outbox", Test: "^TestPages$/^redis$",
		Old: `s > score or s == score and is_before(member, found[1])`, New: `s > score`,
		Why: "of what was parked in one millisecond a page is listed",
	},
}
