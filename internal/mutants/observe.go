package main

// observeMutants break what metrics and traces rest on.
var observeMutants = []Mutant{
	{
		Name: "observe-overlooks-refusals", File: "commit.go", Package: ".", Test: "^TestObserver$/^redis$",
		Old: "		_, err := t.finish(ctx, p)\n		return nil, err\n", New: "		fail(p.cmds, err)\n		return nil, err\n",
		Why: "no metric shows the transactions that never leave",
	},
	{
		Name: "observe-lets-a-panic-through", File: "internal/observe/observe.go", Package: ".", Test: "^TestObserverOfAHandler$",
		Old: `if v := recover(); v != nil {`, New: `if v := any(nil); v != nil {`,
		Why: "a broken metric nacks what has been committed",
	},
	{
		Name: "observe-miscounts-the-batch", File: "internal/script/exchange.go", Package: ".", Test: "^TestObserverOfABatch$",
		Old: `max(1, c.parts)`, New: `1`,
		Why: "nobody sees whether commits share scripts",
	},
	{
		Name: "observe-overlooks-crashed-events", File: "relay/cold.go", Package: "relay", Test: "^TestObserverOfACrash$",
		Old: "		r.cfg.Observer.crashed(ctx, r.cfg.Logger, slot, claim.Parked)\n", New: "",
		Why: "the alert on parked events misses those that kill their relay",
	},
	{
		Name: "observe-takes-a-release-for-an-ack", File: "stream/subscription.go", Package: "stream", Test: "^TestObserver$/^redis$",
		Old: `cfg.Release = func() { by.released = true }`, New: `cfg.Release = func() {}`,
		Why: "messages that were lost to another consumer count as handled",
	},
}
