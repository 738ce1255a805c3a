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

	commit, resolve, read, probe, enqueue *eval.Script

	background   sync.WaitGroup // compiles and notes plans
	compileAfter atomic.Int64   // see CompileAfter
	stringsOnly  atomic.Bool    // set by Probe: other keys cannot be restored whole
}

// New composes the scripts. It does no I/O. Plans are not compiled before CompileAfter is called.
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

// Send sends commits, and returns when each has a reply, ctx has ended, or the time until has come; a zero until leaves that to
// ctx. Commits share round trips and scripts with each other, and with those that others send at the same time. Each takes effect
// as a whole or not at all. Their order is not defined.
//
// The tail is sent once, behind the commits in the same pipeline, for the next commands of a consumer; its commands carry their
// own errors. A batch with a tail shares nothing with others.
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

// together makes commits of one source that must follow each other share a script, in which they keep their order. Those of different
// plans share the general one.
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

// Resolve returns the state of a digest or a position, or of a token if it is not empty, and the server's time. With a tombstone, it
// prevents a copy of the token's commit from taking effect up to that server time. If there is a position, the digest does not count.
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
	if err != nil {
		return "", "", time.Time{}, err
	}
	word, _ := rest[0].(string)
	if len(rest) > 1 {
		text, _ = rest[1].(string)
	}
	return State(word), text, now, nil
}
