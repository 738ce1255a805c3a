package commit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/shard"
)

// Sender sends commits, and what else concerns transactions.
type Sender struct {
	// Note is called, in a goroutine of its own, when a plan is compiled, and now and then while it is used. Nil: nobody wants
	// to know.
	Note func(shard.Plan)

	runner     *eval.Runner
	durability eval.Durability
	constants  shard.Constants
	plans      plans

	commit, resolve, read, probe, enqueue *eval.Script

	background   sync.WaitGroup // what compiles and notes plans
	compileAfter atomic.Int64   // see CompileAfter
	stringsOnly  atomic.Bool    // what Probe found: other keys cannot be restored whole
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

// Send sends each commit, and returns when each is answered, ctx has ended, or it is the time until; zero: ctx
// alone says when. They share round trips and scripts with each other, and with what others send at the same time; each
// is whole or absent for itself. There is no order among them.
//
// The tail goes out with them, once, behind them in the same pipeline, for what a consumer does next; its commands
// carry their own errors. Such a batch shares nothing with others.
func (s *Sender) Send(ctx context.Context, until time.Time, batch []*Commit, tail ...redis.Cmder) {
	var few [4]*eval.Call
	open := few[:0]
	for _, c := range batch {
		s.prepare(c)
		c.call.Until = until
		c.call.Alone = s.durability.On() && !s.durability.Patient(ctx, until)
		open = append(open, &c.call)
	}
	s.runner.Send(ctx, open, tail...)
	for _, c := range batch {
		c.decode()
	}
}

// prepare makes the call of a commit, which lays its arguments out when it is sent.
func (s *Sender) prepare(c *Commit) {
	c.notAfter = c.NotAfter.UnixMilli()
	c.args = c.arguments()
	c.stage()
	c.general, c.plans = s.commit, &s.plans
	c.plan = s.plans.of(c, s.stringsOnly.Load())
	c.compiled = s.ready(c)
	c.call = eval.Call{Script: s.commit, Key: c.Shard.Void, Load: c, Wait: s.durability}
}

// Resolve returns what became of a digest, or of a token where it is not empty, and the server's time. With a tombstone it makes sure
// that no copy of the token's commit takes effect up to that server time.
func (s *Sender) Resolve(ctx context.Context, home shard.Shard, digest, token string, tombstone time.Time) (state State, text string, now time.Time, err error) {
	until := ""
	if !tombstone.IsZero() {
		until = eval.Millis(tombstone)
	}
	reply, err := s.runner.Eval(ctx, s.resolve, home.ResolveKeys(), []any{digest, token, until})
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
