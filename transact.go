package luatx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/message"
)

// Transact runs fn and commits what it recorded: commands, events and the mark of its id. It commits all of it or nothing. Every
// key must share the slot of the aggregate's tag. If fn returns an error, Transact commits nothing and returns that error. The
// errors of the commit are those of this package. If a value that fn read with Tx.Read changes before the commit, fn runs again
// with a new Tx, up to Config.ConflictRetries times. If ctx ends, or Config.CommitTimeout passes, after the commit was sent and
// before the server has replied, Transact returns an UnknownError.
//
// An id that is already in the inbox does not prevent fn from running, because only the commit decides. If fn fails and its id is
// in the inbox, Transact returns Duplicate without an error.
func (t *Transactor) Transact(ctx context.Context, aggregate string, fn func(*Tx) error, opts ...Option) (Result, error) {
	c, err := t.newInvocation(ctx, aggregate, fn, opts)
	if err != nil {
		return Result{}, err
	}
	for n := 0; ; n++ {
		tx, result, err := t.run(ctx, c)
		if tx != nil {
			t.send(ctx, []*Tx{tx})
			result, err = t.finish(ctx, tx)
			t.memory.reclaim(tx)
		}
		if again, err := t.retries(ctx, n, err); !again {
			return result, err
		}
	}
}

// Option changes one call of Transact.
type Option func(*options)

type options struct {
	id   MessageID
	keep bool
}

// WithID makes the call idempotent: calls with the same id on the same aggregate take effect once within the retention. Without
// an id, every call takes effect, each exactly once.
func WithID(id string) Option {
	return func(o *options) { o.id = MessageID{Scope: "transact", ID: id} }
}

// KeepReplies stores the replies of the call's commands with its id, for the retention. A later call that returns Replayed or
// Duplicate and records as many commands gets the replies of the first one. KeepReplies requires WithID. Replies of more than
// Config.KeepBytes are not stored; the commands then return ErrRepliesLost. A shard may forget replies before the end of the retention
// if more than 100,000 later calls have stored theirs.
func KeepReplies() Option {
	return func(o *options) { o.keep = true }
}

// An invocation is one call of Transact, or one item of a batch, over all runs of its function.
type invocation struct {
	options
	fn             func(*Tx) error
	tag, aggregate string
	delivery       delivery
}

func (t *Transactor) newInvocation(ctx context.Context, aggregate string, fn func(*Tx) error, opts []Option) (*invocation, error) {
	if _, nested := TxFromContext(ctx); nested {
		return nil, fmt.Errorf("%w: Transact inside a handler's transaction: record on that one", ErrNested)
	}
	if fn == nil {
		return nil, errors.New("luatx: the transaction's function is nil")
	}
	tag, err := t.cfg.Keyspace.Tag(aggregate)
	if err != nil {
		return nil, err
	}
	c := &invocation{fn: fn, tag: tag, aggregate: aggregate, delivery: newDelivery(nil)}
	for _, opt := range opts {
		opt(&c.options)
	}
	if c.keep && c.id.Scope == "" {
		return nil, errors.New("luatx: KeepReplies without WithID: there is nothing to find the replies by")
	}
	return c, nil
}

// run runs the function once and prepares what it recorded. If it returns no Tx, there is nothing to commit, and the caller gets
// the result and the error.
func (t *Transactor) run(ctx context.Context, c *invocation) (*Tx, Result, error) {
	tx := t.begin(c.tag, c.aggregate, &c.delivery)
	defer tx.end()
	tx.keep = c.keep
	if c.id.Scope != "" {
		if err := tx.Claim(c.id); err != nil {
			return nil, Result{}, err
		}
	}
	if err := c.fn(tx); err != nil {
		if err := tx.explain(ctx, err); err != nil {
			return nil, Result{}, err
		}
		return nil, Result{Outcome: Duplicate}, nil
	}
	ready, err := t.prepare(ctx, tx, commit.Input{})
	if err != nil {
		return nil, Result{}, err
	}
	if !ready {
		return nil, t.nothing(), nil
	}
	return tx, Result{}, nil
}

func (t *Transactor) begin(tag, aggregate string, d *delivery) *Tx {
	tx := &Tx{
		t:         t,
		tag:       tag,
		aggregate: aggregate,
		delivery:  d,
		recorded:  link.NewRecording(t.inside),
		id:        MessageID{ID: d.base()},
		home:      t.shards.Shard(slot.OfTag(tag)),
	}
	tx.sent = t.memory.take(tx.home)
	t.source.Init(&tx.recorder, (*recording)(tx))
	return tx
}

// conflictBackoff is the pause between runs of a handler whose guarded reads have changed.
var conflictBackoff = message.Backoff{Base: time.Millisecond, Max: 64 * time.Millisecond}

// retries reports whether a function must run again because a value that it read has changed, and pauses before it returns true.
// n is the number of the run, from 0. If it returns false, the error is the one for the caller.
func (t *Transactor) retries(ctx context.Context, n int, err error) (bool, error) {
	if err == nil || !errors.Is(err, ErrConflict) || n >= t.cfg.ConflictRetries {
		return false, err
	}
	if !sleep.For(ctx, conflictBackoff.Delay(n+1)) {
		return false, errors.Join(err, ctx.Err())
	}
	return true, nil
}

// explain returns the error for the caller after the transaction's function failed with cause. It returns nil if the
// transaction's id was committed before, because that may have caused the error. It returns ErrConflict if a value that the
// function read has changed. Otherwise it returns cause.
func (tx *Tx) explain(ctx context.Context, cause error) error {
	if tx.marked(ctx) {
		return nil
	}
	if err := tx.verify(ctx); errors.Is(err, ErrConflict) {
		return err
	}
	return cause
}
