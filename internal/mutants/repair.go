package main

// repairMutants break what repairing rests on.
var repairMutants = []Mutant{
	{
		Name: "repair-dry-run-writes", File: "lua/_repair.lua", Package: "repair", Test: "^TestInvariants$/^redis$",
		Old: `if FIX then redis.call(...) end`, New: `redis.call(...)`,
		Why: "looking changes what is looked at",
	},
	{
		Name: "repair-forgets-lost-events", File: "lua/_repair_outbox.lua", Package: "repair", Test: "^TestInvariants$/^redis$",
		Old: `if not pending and head == id then settle`, New: `if false then settle`,
		Why: "an event that left the index is never published",
	},
	{
		Name: "repair-believes-the-index", File: "lua/_repair_outbox.lua", Package: "repair", Test: "^TestInvariants$/^redis$",
		Old: `if sent then misplaced('sent', id, 'not sent') end`, New: `if sent then return end`,
		Why: "an event that was not sent is deleted with the sent ids",
	},
	{
		Name: "repair-publishes-parked", File: "lua/_repair_outbox.lua", Package: "repair", Test: "^TestInvariants$/^redis$",
		Old: `if pending then misplaced('pending', id, 'parked') end`, New: `if pending then misplaced('parked', id, 'parked') end`,
		Why: "an event that a person is to look at goes out",
	},
	{
		Name: "repair-beside-a-wrong-type", File: "lua/repair.lua", Package: "repair", Test: "^TestInvariants$/^redis$",
		Old: `if exists[name] and sound[name] and (outbox or name == 'broken') then`, New: `if exists[name] and sound[name] then`,
		Why: "where one key cannot be read, the others are emptied, or the step fails",
	},
	{
		Name: "repair-of-a-foreign-shard", File: "lua/_repair.lua", Package: "repair", Test: "^TestForeign$/^redis$",
		Old: `if identity and identity ~= IDENTITY then`, New: `if false then`,
		Why: "a service repairs the shard of another configuration",
	},
	{
		Name: "repair-drops-a-live-inbox", File: "lua/_repair_inbox.lua", Package: "repair", Test: "^TestInvariants$/^redis$",
		Old: `if empty or start and now - start >= 2 * RETENTION then`, New: `if empty or start and now - start >= RETENTION then`,
		Why: "ids are forgotten within the retention, and messages count twice",
	},
	{
		Name: "repair-leaves-a-generation-unlinked", File: "lua/_repair_inbox.lua", Package: "repair", Test: "^TestHealedWorksAgain$/^redis$",
		Old: `'HSET', A, 'id', IDENTITY, 'start', NOW, 'b', '1', 'tomb', tomb)`, New: `'HSET', A, 'id', IDENTITY, 'start', NOW, 'tomb', tomb)`,
		Why: "messages of the older generation count twice",
	},
	{
		Name: "repair-loses-the-owner", File: "lua/_repair_inbox.lua", Package: "repair", Test: "^TestHealedWorksAgain$/^redis$",
		Old: `if FIX and guarded then redis.call`, New: `if false then redis.call`,
		Why: "another keyspace claims the events of a shard whose inbox has passed",
	},
	{
		Name: "repair-lease-of-parked", File: "lua/_repair_outbox.lua", Package: "repair", Test: "^TestInvariants$/^redis$",
		Old: `elseif name == 'leases' and (scored('parked', id) or not scored('pending', id)) then`, New: `elseif false then`,
		Why: "a lease is left over for ever",
	},
	{
		Name: "repair-of-one-index-only", File: "lua/_repair_outbox.lua", Package: "repair", Test: "^TestInvariants$/^redis$",
		Old: `local head = lane and lane ~= '' and head_of(lane) or id`, New: `local head = id`,
		Why: "every event of a lane goes out at once",
	},
	{
		Name: "repair-forgets-lanes", File: "lua/_repair_outbox.lua", Package: "repair", Test: "^TestInvariants$/^redis$",
		Old: `elseif not redis.call('ZSCORE', key.lanes, member_of(id, text)) then`, New: `elseif false then`,
		Why: "an event that has lost its place in its lane waits for ever",
	},
	{
		Name: "repair-counts-a-moving-shard", File: "lua/_repair_counts.lua", Package: "repair", Test: "^TestBesideCommitsAndRelays$/^redis$",
		Old: `if not counted or began ~= version() or total.seen ~= redis.call('HLEN', key.entries) then return end`, New: `if not counted then return end`,
		Why: "the capacity of a shard drifts with every round",
	},
	{
		Name: "repair-leaves-the-counts", File: "lua/_repair_counts.lua", Package: "repair", Test: "^TestInvariants$/^redis$",
		Old: `if (has or '0') ~= is then settle`, New: `if false then settle`,
		Why: "a shard that has lost its counts takes too many events, or none",
	},
	{
		Name: "repair-one-step-only", File: "lua/repair.lua", Package: "repair", Test: "^TestSteps$/^redis$",
		Old: `if cursor == '0' then part = part + 1 end`, New: `part, cursor = part + 1, '0'`,
		Why: "of a large shard the first hundred ids are looked at",
	},
	{
		Name: "repair-unbounded", File: "lua/repair.lua", Package: "repair", Test: "^TestSteps$/^redis$",
		Old: `while parts[part] and seen < LIMIT do`, New: `while parts[part] do`,
		Why: "a large shard blocks the server",
	},
	{
		Name: "repair-two-at-a-time", File: "lua/turn.lua", Package: "repair", Test: "^TestOneAtATime$/^redis$",
		Old: `if not mine and state[1] and left > 0 then`, New: `if false then`,
		Why: "every process repairs at once",
	},
	{
		Name: "repair-every-process-its-round", File: "lua/turn.lua", Package: "repair", Test: "^TestOneAtATime$/^redis$",
		Old: `if not mine and due > 0 and`, New: `if false and`,
		Why: "ten processes make ten rounds an interval",
	},
	{
		Name: "repair-rounds-begin-anew", File: "lua/turn.lua", Package: "repair", Test: "^TestRoundsGoOn$",
		Old: `if mine and ARGV[5] ~= '' then`, New: `if false then`,
		Why: "the last shards are never repaired where processes are replaced often",
	},
	{
		Name: "repair-rounds-do-not-come-back", File: "repair/worker.go", Package: "repair", Test: "^TestRoundsComeBack$",
		Old: `if again := left; complete && len(again) > 0 {`, New: `if again := left; false {`,
		Why: "a failover costs the repair of its shards an interval",
	},
	{
		Name: "repair-goes-on-without-its-turn", File: "repair/worker.go", Package: "repair", Test: "^TestTurnLost$",
		Old: `if err != nil || !turn.Mine {`, New: `if err != nil || turn.Mine && !turn.Mine {`,
		Why: "a worker that was slow repairs beside its successor",
	},
	{
		Name: "repair-sweeps-with-scripts", File: "internal/script/repair.go", Package: "repair", Test: "^TestSweep$",
		Old: `case reply.Val() > 0:`, New: `default:`,
		Why: "16,384 scripts a round, most of them for nothing",
	},
	{
		Name: "repair-stops-at-the-first-error", File: "repair/repair.go", Package: "repair", Test: "^TestListing$",
		Old: `return l.yield(Finding{}, err) && ctx.Err() == nil &&`, New: `return l.yield(Finding{}, err) && false &&`,
		Why: "one sick shard keeps all others from being repaired",
	},
	{
		Name: "rounds-begin-at-the-first-shard", File: "repair/worker.go", Package: "repair", Test: "^TestAround$",
		Old: `first = rand.IntN(len(shards))`, New: `first = 0`,
		Why: "the last shards are never repaired where rounds are cut short",
	},
}
