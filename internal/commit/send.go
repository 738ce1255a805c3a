package commit

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/shard"
)

// Sender sends commits and other requests about transactions.
type Sender struct {
	// Note is called in a separate goroutine when a plan is compiled, and from time to time while it is used. Nil disables notes.
	Note func(shard.Plan)

	runner     *eval.Runner
	durability eval.Durability
	constants  shard.Constants
	plans      plans
	taken      takenKeys

	commit, resolve, read, probe, enqueue *eval.Script

	background   sync.WaitGroup // compiles and notes plans
	compileAfter atomic.Int64   // see CompileAfter
	stringsOnly  atomic.Bool    // set by Probe: keys of other types cannot be restored completely
}

// New generates the scripts. It does no I/O. The Sender compiles no plans before CompileAfter is called.
func New(runner *eval.Runner, c shard.Constants, procedures []Procedure) *Sender {
	script := func(name string) *eval.Script { return runner.Script(name, c.Script(name)) }
	return &Sender{
		runner:     runner,
		durability: c.Durability,
		constants:  c,
		commit:     runner.Script("commit", sources(procedures)+c.Script("commit")),
		resolve:    script("resolve"),
		read:       script("read"),
		probe:      script("probe"),
		enqueue:    script("enqueue"),
	}
}

// Send sends commits. It returns when each commit has a reply, when ctx ends, or at the time until. A zero until means
// no such time. Commits share round trips and scripts with each other, and with concurrent commits of others. Each
// takes effect completely or not at all. Their order is not defined.
//
// Send sends the tail once, after the commits in the same pipeline. The tail contains the next commands of a consumer,
// and each of them carries its own error. A batch with a tail shares nothing with other batches.
func (s *Sender) Send(ctx context.Context, until time.Time, batch []*Commit, tail ...redis.Cmder) {
	var few [4]*eval.Call
	open := few[:0]
	for _, c := range batch {
		s.prepare(c)
		c.call.Until = until
		c.call.Alone = s.durability.On() && !s.durability.Patient(ctx, until)
		open = append(open, &c.call)
	}
	together(batch)
	s.runner.Send(ctx, open, tail...)
	for _, c := range batch {
		c.decode()
	}
}

// together makes the commits of one source that must keep their order share a script, in which they keep it. If their
// plans differ, all commits of the batch use the general script.
func together(batch []*Commit) {
	mixed := func(c *Commit) bool {
		return c.Position != nil && c.Position.After != "" && c.compiled != batch[0].compiled
	}
	if !slices.ContainsFunc(batch, mixed) {
		return
	}
	for _, c := range batch {
		c.compiled = nil
	}
}

// prepare creates the call of a commit. The call encodes its arguments when it is sent.
func (s *Sender) prepare(c *Commit) {
	c.notAfter = c.NotAfter.UnixMilli()
	c.args = c.arguments()
	c.stage()
	c.general, c.plans = s.commit, &s.plans
	c.plan = s.plans.of(c, s.stringsOnly.Load())
	c.compiled = s.ready(c)
	c.call = eval.Call{Script: s.commit, Key: c.Shard.Void, Load: c, Wait: s.durability}
}

// Resolve returns the state of a digest or a position, and the server's time. The state is that of the token's commit,
// unless token is empty. A tombstone prevents a copy of that commit from taking effect up to that server time. If there
// is a position, Resolve ignores the digest.
func (s *Sender) Resolve(ctx context.Context, home shard.Shard, digest string, position *Position, token string, tombstone time.Time) (state State, text string, now time.Time, err error) {
	until := ""
	if !tombstone.IsZero() {
		until = eval.Millis(tombstone)
	}
	offset, epoch := "", ""
	if position != nil {
		digest, offset, epoch = position.Field, position.Offset, position.epoch()
	}
	reply, err := s.runner.Eval(ctx, s.resolve, home.ResolveKeys(), []any{digest, token, until, offset, epoch})
	if err != nil {
		return "", "", time.Time{}, err
	}
	now, rest, err := eval.Timed(reply)
	if err == nil && len(rest) != 2 {
		err = eval.Malformed("resolve", rest)
	}
	if err != nil {
		return "", "", time.Time{}, err
	}
	return State(eval.Word(rest[0])), eval.Word(rest[1]), now, nil
}
