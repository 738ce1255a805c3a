// Package shard runs the scripts of shards: one Go method a script, each an atomic step on one slot. A shard is what luatx
// keeps in a slot: the inbox, the outbox and the timers.
package shard

import (
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/slot"
)

// Scripts are the scripts of shards with their constants, and what runs them.
type Scripts struct {
	runner    *eval.Runner
	client    redis.UniversalClient
	namespace string
	identity  string
	shards    [slot.Count]atomic.Pointer[place] // those that were asked for

	scheduled, claim, settle               *eval.Script
	rearm, discard, erase, replay, imports *eval.Script
	list                                   *eval.Script
	timer, due, decide, revoke             *eval.Script
	repair, turn                           *eval.Script
	sweep, extend                          *eval.Script
	forget, rights                         *eval.Script
	pause, resume, pauses, unhold          *eval.Script
}

// New composes the scripts. It does no I/O.
func New(runner *eval.Runner, c Constants) *Scripts {
	s := &Scripts{
		runner:    runner,
		client:    runner.Client(),
		namespace: c.Namespace,
		identity:  c.Identity,
		claim:     runner.Script("claim", c.In(onOutbox("claim"))),
		settle:    runner.Script("settle", c.In(onOutbox("settle"))),
		rearm:     runner.Script("rearm", c.In(onOutbox("_owned", "_audit", "rearm"))),
		discard:   runner.Script("discard", c.In(onOutbox("_owned", "_audit", "discard"))),
		erase:     runner.Script("erase", c.In(onOutbox("_owned", "_audit", "erase"))),
		replay:    runner.Script("replay", c.In(onOutbox("_owned", "_audit", "replay"))),
		imports:   runner.Script("import", c.In(onOutbox("_owned", "_audit", "import"))),
		list:      runner.Script("list", c.In(onOutbox("list"))),
		scheduled: runner.Script("scheduled", c.In(onOutbox("scheduled"))),
		timer:     runner.Script("timer", c.In(lua.Source("_time", "_timers", "timer"))),
		due:       runner.Script("due", c.In(lua.Source("_time", "due"))),
		decide:    runner.Script("decide", c.In(lua.Source("_time", "_events", "_timers", "decide"))),
		revoke:    runner.Script("revoke", c.In(lua.Source("_time", "_events", "_timers", "revoke"))),
		repair: runner.Script("repair", c.In(lua.Source("_time", "_full", "_outbox", "_lanes", "_errors", "_park",
			"_repair", "_repair_inbox", "_repair_counts", "_repair_outbox", "repair"))),
		turn:   runner.Script("turn", lua.Source("_time", "_full", "turn")),
		sweep:  runner.Script("sweep", lua.Source("_time", "_full", "sweep")),
		extend: runner.Script("extend", lua.Source("_time", "_full", "extend")),
		forget: runner.Script("forget", c.In(lua.Source("_time", "_outbox", "_owned", "_audit", "forget"))),
		rights: runner.Script("rights", lua.Source("rights")),
		pause:  runner.Script("pause", c.In(lua.Source("_time", "_full", "_outbox", "_owned", "_audit", "pause"))),
		resume: runner.Script("resume", c.In(lua.Source("_time", "_full", "_outbox", "_owned", "_audit", "resume"))),
		pauses: runner.Script("pauses", lua.Source("_time", "pauses")),
		unhold: runner.Script("unhold", lua.Source("_time", "_full", "unhold")),
	}
	return s
}
