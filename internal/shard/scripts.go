// Package shard runs the scripts of shards: one Go method a script, each an atomic step on one slot. A shard is what luatx
// keeps in a slot: the inbox, the outbox and the timers.
package shard

import (
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
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
	script := func(name string) *eval.Script { return runner.Script(name, c.Script(name)) }
	return &Scripts{
		runner:    runner,
		client:    runner.Client(),
		namespace: c.Namespace,
		identity:  c.Identity,
		claim:     script("claim"),
		settle:    script("settle"),
		rearm:     script("rearm"),
		discard:   script("discard"),
		erase:     script("erase"),
		replay:    script("replay"),
		imports:   script("import"),
		list:      script("list"),
		scheduled: script("scheduled"),
		timer:     script("timer"),
		due:       script("due"),
		decide:    script("decide"),
		revoke:    script("revoke"),
		repair:    script("repair"),
		turn:      script("turn"),
		sweep:     script("sweep"),
		extend:    script("extend"),
		forget:    script("forget"),
		rights:    script("rights"),
		pause:     script("pause"),
		resume:    script("resume"),
		pauses:    script("pauses"),
		unhold:    script("unhold"),
	}
}
