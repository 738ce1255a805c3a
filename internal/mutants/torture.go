package main

// tortureMutants take a guarantee out each: the torture program must see that it is gone, without knowing where.
var tortureMutants = []Mutant{
	{
		Name: "torture-mark-before-effect", File: "lua/commit.lua", Package: "torture", Test: "^TestProcesses$",
		Old: `if not left then left = undoing.restore({'HDEL', KEYS[2], digest}) end`, New: ``,
		Why: "a message whose effect failed passes for applied",
	},
	{
		Name: "torture-no-fence", File: "lua/commit.lua", Package: "torture", Test: "^TestProcesses$",
		Old: `if not (pending and pending[entry]) and`, New: `if false and`,
		Why: "a consumer that stalled commits what another one has taken over",
	},
	{
		Name: "torture-no-undo", File: "lua/commit.lua", Package: "torture", Test: "^TestProcesses$",
		Old: `local left = undoing.rollback()`, New: `local left = nil`,
		Why: "a transaction that failed leaves what came before its failure",
	},
	{
		Name: "torture-ack-before-publish", File: "relay/dispatch.go", Package: "torture", Test: "^TestProcesses$",
		Old: `go func() { f.answers <- r.answer(ctx, until, g) }()`,
		New: `go func() {
				early := make(settlements)
				for _, e := range g.events {
					early.add(e.slot, settlement(e, nil, 0))
				}
				r.settleAll(ctx, early, nothing)
				f.answers <- r.answer(ctx, until, g)
			}()`,
		Why: "an event whose publish fails, or whose relay dies, is never published",
	},
	{
		Name: "torture-random-event-ids", File: "tx.go", Package: "torture", Test: "^TestProcesses$",
		Old: `return tx.identity().EventID(`, New: `return identity.ID{ID: tx.delivery.base()}.EventID(`,
		Why: "a second run of a handler makes another event",
	},
	{
		Name: "torture-repair-of-one-index-only", File: "lua/_repair_outbox.lua", Package: "torture", Test: "^TestProcesses$",
		Old: `if not pending and head == id then settle(`, New: `if false then settle(`,
		Why: "an event that is in no index is never published",
	},
	{
		Name: "torture-lease-shorter-than-the-publish", File: "relay/relay.go", Package: "torture", Test: "^TestProcesses$",
		Old: `return c.Lease * 2 / 3`, New: `return c.Lease * 20`,
		Why: "an event is published by two relays at a time",
	},
	{
		Name: "torture-trigger-acks-first", File: "trigger/work.go", Package: "torture", Test: "^TestProcesses$",
		Old: `	err = l.call(msg, &out)`, New: "	_ = l.driver.Ack(l.life, w.d)\n	err = l.call(msg, &out)",
		Why: "an entry whose function fails, or whose process dies, is lost",
	},
	{
		Name: "torture-settle-without-lease-identity", File: "lua/settle.lua", Package: "torture", Test: "^TestProcesses$",
		Old: `(redis.call('HGET', LEASES, id) or '') ~= lease`, New: `false`,
		Why: "a relay that wakes up late moves what another one publishes",
	},
}
