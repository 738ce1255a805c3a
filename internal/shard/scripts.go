// Package shard runs the scripts of shards. Each script is one Go method, and one atomic step on one slot. A shard is
// the data that luatx stores in a slot: the inbox, the outbox and the timers.
package shard

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/piped"
	"github.com/luatx/luatx/internal/slot"
)

// Scripts contains the scripts of shards, with their constants, and the runner that runs them.
type Scripts struct {
	runner    *eval.Runner
	client    redis.UniversalClient
	namespace string
	identity  string
	shards    [slot.Count]atomic.Pointer[place] // those that were requested so far

	scheduled, claim, settle               *eval.Script
	rearm, discard, erase, replay, imports *eval.Script
	change                                 *eval.Script
	list                                   *eval.Script
	timer, due, decide, revoke             *eval.Script
	repair, turn                           *eval.Script
	sweep, extend                          *eval.Script
	forget, rights                         *eval.Script
	pause, resume, pauses, unhold          *eval.Script
	generation, reposition                 *eval.Script
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
		change:    script("change"),
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

		generation: script("generation"),
		reposition: script("reposition"),
	}
}

// run runs a script on a shard. It returns the server's time and the rows that follow it. The reply must contain the
// given number of rows; 0 allows any number. If the shard belongs to another keyspace, run returns an error.
func (s *Scripts) run(ctx context.Context, script *eval.Script, shard Shard, rows int, args ...any) (time.Time, []any, error) {
	return s.runOn(ctx, script, shard, shard.keysOf(script.Name), rows, args)
}

// runOn is like run, but with additional keys.
func (s *Scripts) runOn(ctx context.Context, script *eval.Script, shard Shard, keys []string, rows int, args []any) (time.Time, []any, error) {
	reply, err := s.runner.Eval(ctx, script, keys, args)
	return rowsOf(script, shard, rows, reply, err)
}

// rowsOf returns the rows of a reply.
func rowsOf(script *eval.Script, shard Shard, rows int, reply any, err error) (time.Time, []any, error) {
	if err != nil {
		return time.Time{}, nil, err
	}
	now, all, err := ownTimed(shard, reply)
	if err == nil && rows > 0 && len(all) != rows {
		err = eval.Malformed(script.Name, reply)
	}
	return now, all, err
}

// identity is the first word of a reply if the shard belongs to another layout or keyspace.
const identity = "identity"

// ownTimed is like eval.Timed, but returns an error for a shard of another keyspace.
func ownTimed(shard Shard, reply any) (time.Time, []any, error) {
	now, rows, err := eval.Timed(reply)
	if err == nil && rows[0] == identity && len(rows) == 2 {
		err = fmt.Errorf("the shard of slot %d belongs to %q", shard.Slot, rows[1])
	}
	return now, rows, err
}

// askSlots sends one command for each slot in one pipeline, and returns the commands in the order of the slots. The
// error is that of the first command that failed. Each command also contains its own error.
func askSlots[C any](ctx context.Context, s *Scripts, slots []int, ask func(pipe redis.Pipeliner, shard Shard) C) ([]C, error) {
	pipe := s.client.Pipeline()
	replies := make([]C, len(slots))
	for i, n := range slots {
		replies[i] = ask(pipe, s.Shard(n))
	}
	_, err := piped.Exec(ctx, pipe)
	return replies, err
}
