package main

// outboxMutants break what events are promised between their commit and their end.
var outboxMutants = []Mutant{
	{
		Name: "unreadable-counts-end-the-batch", File: "lua/commit.lua", Package: ".", Test: "^TestCountsThatCannotBeRead$/^redis$",
		Old: `ok, why = pcall(open_outbox) end`, New: `ok = open_outbox() or true end`,
		Why: "a neighbour's commit has no answer",
	},
	{
		Name: "lane-goes-out-at-once", File: "lua/_enter.lua", Package: "relay", Test: "^TestLanesKeepOrder$/^redis$",
		Old: `if not waits then redis.call`, New: `if true then redis.call`,
		Why: "the events of a lane overtake each other",
	},
	{
		Name: "lane-stops-after-its-head", File: "lua/_lanes.lua", Package: "relay", Test: "^TestLaneInOneTurn$/^redis$",
		Old: `redis.call('ZADD', PENDING, NOW, heir)`, New: ``,
		Why: "what stands behind the first event of a lane is never published",
	},
	{
		Name: "lane-waits-for-a-poll", File: "lua/settle.lua", Package: "relay", Test: "^TestLaneInOneTurn$/^redis$",
		Old: `if hold > 0 then`, New: `if false then`,
		Why: "ten ordered events of a transaction take ten polls",
	},
	{
		Name: "parked-head-does-not-block", File: "lua/_park.lua", Package: "relay", Test: "^TestParkedInALane$",
		Old: `if continues then leave(id) end`, New: `leave(id)`,
		Why: "later events of a key go out while an earlier one waits for a person",
	},
	{
		Name: "parked-head-blocks-for-ever", File: "lua/_park.lua", Package: "relay", Test: "^TestParkedInALane$",
		Old: `if continues then leave(id) end`, New: ``,
		Why: "LaneContinues does not",
	},
	{
		Name: "one-blocked-lane-closes-the-shard", File: "lua/_enter.lua", Package: ".", Test: "^TestParkedCapacity$/^redis$",
		Old: `>= LANE_CAPACITY and 'lane'`, New: `>= 1000 * LANE_CAPACITY and 'lane'`,
		Why: "the events behind one that is parked use up the room of all others",
	},
	{
		Name: "lane-capacity-with-one-too-many", File: "lua/_enter.lua", Package: ".", Test: "^TestCapacityIsExact$/^lane$/^redis$",
		Old: `>= LANE_CAPACITY and 'lane'`, New: `> LANE_CAPACITY and 'lane'`,
		Why: "a lane holds more than it may",
	},
	{
		Name: "bytes-not-bounded", File: "lua/_events.lua", Package: ".", Test: "^TestCapacityIsExact$/^bytes$/^redis$",
		Old: `(bytes > OUTBOX_BYTES and 'bytes')`, New: `(o.bytes > OUTBOX_BYTES and 'bytes')`,
		Why: "large events fill the server",
	},
	{
		Name: "parked-capacity-ignored", File: "lua/_events.lua", Package: ".", Test: "^TestParkedCapacity$/^redis$",
		Old: `(o.parked >= PARKED_CAPACITY and 'parked')`, New: `false`,
		Why: "a broken destination parks events until the server is full",
	},
	{
		Name: "counts-not-taken-back", File: "lua/commit.lua", Package: ".", Test: "^TestOrderedEventsTakenBack$/^redis$",
		Old: `o.events, o.bytes, o.came, o.again = had_events, had_bytes, had_come, had_again`, New: ``,
		Why: "transactions that fail use up the capacity of the outbox",
	},
	{
		Name: "lane-not-taken-back", File: "lua/_enter.lua", Package: ".", Test: "^TestOrderedEventsTakenBack$/^redis$",
		Old: `undo[#undo + 1] = {'ZREM', LANES, member}`, New: ``,
		Why: "a transaction that failed blocks a lane for ever",
	},
	{
		Name: "header-not-taken-back", File: "lua/_enter.lua", Package: ".", Test: "^TestOrderedEventsTakenBack$/^redis$",
		Old: `undo[#undo + 1] = {'HDEL', HEADERS, id}`, New: ``,
		Why: "transactions that fail leave headers of events that never were",
	},
	{
		Name: "schedule-not-taken-back", File: "lua/_enter.lua", Package: ".", Test: "^TestOrderedEventsTakenBack$/^redis$",
		Old: `undo[#undo + 1] = {'HDEL', ATTEMPTS, id}`, New: ``,
		Why: "transactions that fail leave attempts of events that never were",
	},
	{
		Name: "neighbours-lane-taken-back", File: "lua/commit.lua", Package: ".", Test: "^TestOrderedEventsTakenBack$/^redis$",
		Old: `for n = #undo, 1, -1 do undo[n] = nil end`, New: ``,
		Why: "a transaction that fails takes events of another one out of their lane",
	},
	{
		Name: "procedure-loses-an-event", File: "lua/commit.lua", Package: ".", Test: "^TestProcedureEmitsInOrder$/^redis$",
		Old: `if emitted.failed then error(emitted.failed, 0) end`, New: ``,
		Why: "a procedure that hides an error commits without its event",
	},
	{
		Name: "parked-uncounted", File: "lua/_park.lua", Package: "outbox", Test: "^TestSettlements$/^redis$",
		Old: `tally(body, class_of(id), -1)`, New: ``,
		Why: "the overview of parked events shows those that were re-armed long ago",
	},
	{
		Name: "history-without-an-end", File: "lua/_errors.lua", Package: "outbox", Test: "^TestHistory$/^redis$",
		Old: `(ends and string.sub(old, 1, ends - 1) or old)`, New: `old`,
		Why: "an event that fails for a year fills the server with its errors",
	},
	{
		Name: "given-back-with-its-attempt", File: "lua/settle.lua", Package: "outbox", Test: "^TestModel$",
		Old: `redis.call('HINCRBY', ATTEMPTS, id, -1) <= 0`, New: `redis.call('HINCRBY', ATTEMPTS, id, 0) <= 0`,
		Why: "a relay that restarts often parks events that nobody has refused",
	},
	{
		Name: "sent-twice", File: "lua/settle.lua", Package: "outbox", Test: "^TestSettlements$/^redis$",
		Old: `or state == 61 or gone[id] then`, New: `or false then`,
		Why: "a late settlement changes what was sent",
	},
	{
		Name: "sent-without-a-look-twice", File: "lua/settle.lua", Package: "outbox", Test: "^TestModel$",
		Old: `or redis.call('ZREM', PENDING, unpack(ids)) < #ids then`, New: `or redis.call('ZREM', PENDING, unpack(ids)) < 0 then`,
		Why: "what was sent, parked or erased before is counted as sent again",
	},
	{
		Name: "sent-without-a-look-at-the-lane", File: "lua/settle.lua", Package: "outbox", Test: "^TestModel$",
		Old: `if header then return false end`, New: ``,
		Why: "the events behind one that was sent are never published",
	},
	{
		Name: "first-attempt-uncounted", File: "lua/_lease.lua", Package: "outbox", Test: "^TestModel$",
		Old: `return tonumber(attempts) or (leased and 1 or 0)`, New: `return tonumber(attempts) or 0`,
		Why: "the attempt of a relay that died is forgotten",
	},
	{
		Name: "parked-attempt-uncounted", File: "lua/_park.lua", Package: "outbox", Test: "^TestModel$",
		Old: `redis.call('HSET', ATTEMPTS, id, 1)`, New: ``,
		Why: "a parked event seems never to have been tried",
	},
	{
		Name: "sent-id-kept-where-it-must-not-be", File: "lua/settle.lua", Package: "outbox", Test: "^TestSentBodies$/^redis$",
		Old: `if retention < 0 then`, New: `if false then`,
		Why: "ids that should be forgotten at once are kept",
	},
	{
		Name: "sent-body-lost", File: "lua/settle.lua", Package: "outbox", Test: "^TestSentBodies$/^redis$",
		Old: `(keep and body or '')`, New: `''`,
		Why: "there is nothing to replay",
	},
	{
		Name: "cancelled-in-a-relays-hands", File: "lua/scheduled.lua", Package: "outbox", Test: "^TestCancelAndMove$/^redis$",
		Old: `if redis.call('HGET', ATTEMPTS, id) ~= '0' or not`, New: `if not`,
		Why: "an event is published that was cancelled, and its caller told that it was in time",
	},
	{
		Name: "enqueued-by-half", File: "lua/enqueue.lua", Package: "outbox", Test: "^TestEnqueue$/^redis$",
		Old: `local left = undoing().rollback()`, New: `local left = nil`,
		Why: "of a call that is refused some events are published",
	},
	{
		Name: "ordered-events-inline", File: "relay/inline.go", Package: "relay", Test: "^TestOrderedBesidePlain$/^redis$",
		Old: `if event.Key == "" && event.At.IsZero() && reserved {`, New: `if event.At.IsZero() && reserved {`,
		Why: "the committer publishes ordered events at once, before those that wait",
	},
	{
		Name: "stopping-relay-keeps-the-lane", File: "relay/cold.go", Package: "relay", Test: "^TestStopGivesLanesBack$",
		Old: `rounds > maxRounds || ctx.Err() != nil`, New: `rounds > maxRounds`,
		Why: "a relay that is to stop goes on with its lanes until it is killed",
	},
}
