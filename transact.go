package luatx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/message"
)

// Transact runs fn and commits what it recorded: commands, events and the mark of its id, whole or not at all.
// Every key must share the slot of the aggregate's tag. An error of fn commits nothing and is returned as it
// is. The commit's errors are the ones in this package; each says what to do. Where what fn has read by Tx.Read
// changes before the commit fn runs again, on a new Tx, up to Config.ConflictRetries times.
//
// An id that is known already does not keep fn from running: the commit decides. Where fn fails and its id is
// known, Transact answers Duplicate and no error.
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

// WithID makes the call idempotent: calls with the same id on the same aggregate have their effect once within
// the retention. Without an id every call is a new one, though it is still committed once.
func WithID(id string) Option {
	return func(o *options) { o.id = MessageID{Scope: "transact", ID: id} }
}

// KeepReplies keeps the replies of the call's commands beside its id, for the retention: a call that is answered
// Replayed or Duplicate then finds the first one's replies in its own commands, provided that it records as many.
// It needs WithID. More than Config.KeepBytes are not kept: such commands answer ErrRepliesLost.
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

// run runs the function once and prepares what it recorded. Without a Tx there is nothing to commit, and the result and the
// error are the caller's.
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

// begin opens a transaction on a tag.
func (t *Transactor) begin(tag, aggregate string, d *delivery) *Tx {
	tx := &Tx{
		t:         t,
		tag:       tag,
		aggregate: aggregate,
		commit:    commit.Commit{Shard: t.shards.Shard(slot.OfTag(tag))},
		delivery:  d,
		id:        MessageID{ID: d.base()},
	}
	tx.commit.Events = tx.few.events[:0]
	t.source.Init(&tx.recorder, (*recording)(tx))
	return tx
}

// conflictBackoff is the pause between runs of a handler whose guarded reads have changed.
var conflictBackoff = message.Backoff{Base: time.Millisecond, Max: 64 * time.Millisecond}

// retries reports whether a function must run again because a value that it read has changed. It pauses before it returns
// true. n is the number of the run, from 0. Otherwise it returns the error for the caller.
func (t *Transactor) retries(ctx context.Context, n int, err error) (bool, error) {
	if err == nil || !errors.Is(err, ErrConflict) || n >= t.cfg.ConflictRetries {
		return false, err
	}
	if !sleep.For(ctx, conflictBackoff.Delay(n+1)) {
		return false, errors.Join(err, ctx.Err())
	}
	return true, nil
}

// explain returns what to tell the caller if the transaction's function failed with cause. It returns nil if the transaction's
// id was committed before, because the error may come from that. It returns ErrConflict if a value that the function read has
// changed. Otherwise it returns cause.
func (tx *Tx) explain(ctx context.Context, cause error) error {
	if tx.marked(ctx) {
		return nil
	}
	if err := tx.verify(ctx); errors.Is(err, ErrConflict) {
		return err
	}
	return cause
}
