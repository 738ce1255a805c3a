package luatx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/mark"
	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/message/middleware"
)

// deliveryKey is the key under which a message holds its delivery across runs of its handler.
type deliveryKey struct{}

// Middleware runs each handler inside a transaction on the tag of its message, and commits it in one script on one slot when the
// handler has returned without an error. The transaction records the commands that adapters issue on CmdableFromContext.
// inbox.Middleware makes a message take effect once, and outbox.Middleware turns the handler's outputs into events.
//
// Under message.AckOnSuccess, the script also acknowledges the input if the input stream shares the transaction's slot. If it
// does not, the router acknowledges the message right after the commit. Under other strategies, the router acknowledges it as
// the strategy specifies.
//
// If a value that the handler read with Tx.Read changes before the commit, the handler runs again, up to Config.ConflictRetries
// times.
//
// If a procedure aborts the transaction, the middleware returns the *AbortError and the message is nacked; after reject, the
// error is permanent. A handler that fails or panics writes nothing. If it failed because its message was committed before, the
// message is acknowledged as a duplicate.
//
// Place Middleware outside inbox.Middleware and outbox.Middleware. It returns an error inside another luatx.Middleware and inside
// pipeline.SetNX or pipeline.Middleware. An inbox that is marked before the commit loses the message if the process dies in
// between.
func Middleware(t *Transactor) message.Middleware {
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		next = middleware.Recover().Wrap(next) // a handler may also panic because its message is a duplicate
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			if err := placed(ctx); err != nil {
				return nil, err
			}
			tag, aggregate, err := t.tagOf(msg)
			if err != nil {
				return nil, message.Permanent(err)
			}
			delivery := deliveryOf(ctx, msg)
			for n := 0; ; n++ {
				tx := t.begin(tag, aggregate, delivery)
				outputs, err := t.handle(ctx, tx, msg, next)
				again, err := t.retries(ctx, n, err)
				if again {
					continue
				}
				if err != nil {
					err = t.park(ctx, tx, msg, err)
				}
				return outputs, err
			}
		}
	}, message.Traits{Name: "luatx.Middleware", Transaction: true, Inside: noSetNX})
}

// handle runs a handler once in a transaction and commits it.
func (t *Transactor) handle(ctx context.Context, tx *Tx, msg *message.Message, next message.ProcessFunc) ([]*message.Message, error) {
	defer tx.end()
	outputs, err := next(tx.Context(ctx), msg)
	if err != nil {
		return nil, tx.explain(ctx, err)
	}
	tx.mu.Lock()
	claimed := tx.claimed
	tx.mu.Unlock()
	if err := message.CheckOutputs(ctx, msg, outputs, claimed); err != nil {
		return nil, fmt.Errorf("luatx: commit: %w", err)
	}
	return t.settle(ctx, tx, msg, outputs)
}

// errSetNX is the error for an inbox whose mark does not commit with the transaction.
var errSetNX = &message.WiringError{
	Problem: mark.SetNXName + " around luatx.Middleware marks a message before its effects commit, and loses it if the process dies in between",
	Remedy:  "replace it by inbox.Middleware, inside luatx.Middleware",
}

// noSetNX is the Traits.Inside of Middleware. It returns errSetNX if a SetNX inbox is outside of Middleware.
func noSetNX(outer []message.Traits) error {
	if slices.ContainsFunc(outer, func(t message.Traits) bool { return t.Name == mark.SetNXName }) {
		return errSetNX
	}
	return nil
}

// placed returns an error if the middleware is inside one that breaks its guarantees.
func placed(ctx context.Context) error {
	if mark.In(ctx, mark.SetNX) {
		return errSetNX
	}
	if _, ok := TxFromContext(ctx); ok {
		return fmt.Errorf("%w: luatx.Middleware inside luatx.Middleware; leave one out", ErrNested)
	}
	if ctx.Value(pipelineKey{}) != nil {
		return fmt.Errorf("%w: luatx.Middleware inside pipeline.Middleware; leave one out", ErrNested)
	}
	return nil
}

// settle commits the transaction, and settles the input if the commit determines how.
func (t *Transactor) settle(ctx context.Context, tx *Tx, msg *message.Message, outputs []*message.Message) ([]*message.Message, error) {
	done, err := t.commit(ctx, tx, t.inputOf(ctx, tx, msg))
	claim := link.ClaimOf(tx)
	if errors.Is(err, ErrFenced) {
		if claim != nil {
			claim.Fenced()
		}
		msg.Release() // it belongs to another consumer now
		return nil, err
	}
	if aborted, ok := errors.AsType[*AbortError](err); ok && aborted.Permanent {
		return nil, message.Permanent(err)
	}
	if err != nil {
		return nil, err
	}
	if claim != nil {
		claim.Committed()
	}
	if tx.commit.Outcome.Acked {
		msg.Acknowledged()
	}
	t.memory.reclaim(tx)
	if done.Outcome == Duplicate {
		return nil, nil // the outputs are not from the run that took effect
	}
	return outputs, nil
}

// park commits the dead letter of a message that has failed for good, together with its position. It returns cause if the message is
// to be delivered again.
func (t *Transactor) park(ctx context.Context, tx *Tx, msg *message.Message, cause error) error {
	claim := link.ClaimOf(tx)
	if claim == nil || !isFault(cause) {
		return cause
	}
	if ctx.Err() != nil {
		if expiry, ok := msg.ExpiryTime(); !ok || time.Now().Before(expiry) {
			return cause // the consumer stops
		}
		ctx, cause = context.WithoutCancel(ctx), message.Permanent(cause)
	}
	key, letter, ok := claim.Failed(ctx, cause)
	if !ok {
		return cause
	}
	again := t.begin(tx.tag, tx.aggregate, tx.delivery)
	defer again.end()
	again.id, again.claimed = tx.id, true
	link.SetClaim(again, claim)
	if err := Queued(again.Pipeline().Do(ctx, append([]any{"XADD", key, "*"}, letter...)...)); err != nil {
		return errors.Join(cause, err)
	}
	if _, err := t.settle(ctx, again, msg, nil); err != nil {
		return errors.Join(cause, fmt.Errorf("luatx: park message %s: %w", msg.ID(), err))
	}
	t.cfg.Logger.Error("luatx: message parked as a dead letter", "id", msg.ID(), "source", claim.At.Source, "partition", claim.At.Partition,
		"offset", claim.At.Offset, "dead_letter", key, "error", cause)
	return nil
}

// isFault reports whether an error is the fault of the message or its handler, rather than of the server or the order.
func isFault(err error) bool {
	for _, other := range []error{ErrFenced, ErrConflict, ErrExpired, ErrOutcomeUnknown, ErrOutboxFull, ErrKeyspace, message.ErrStopped} {
		if errors.Is(err, other) {
			return false
		}
	}
	var refused *RefusedError
	var broken *RollbackError
	return !settle.IsUntried(err) && !errors.As(err, &refused) && !errors.As(err, &broken)
}

// inputOf returns what the commit must do about the stream entry from which the message was read.
func (t *Transactor) inputOf(ctx context.Context, tx *Tx, msg *message.Message) commit.Input {
	source, ok := msg.InputSource()
	if !ok || slot.Of(source.Stream) != tx.home.Slot {
		return commit.Input{}
	}
	input := commit.Input{Ack: commit.AckFence, Stream: source.Stream, Group: source.Group, Consumer: source.Consumer, Entry: source.Entry}
	tx.mu.Lock()
	input.Strict = !tx.claimed
	tx.mu.Unlock()
	if strategy, ok := message.AckStrategyFromContext(ctx); ok && strategy == message.AckOnSuccess {
		input.Ack = commit.AckFused
	}
	return input
}

// deliveryOf returns the delivery of a message, which is the same for every run of its handler.
func deliveryOf(ctx context.Context, msg *message.Message) *delivery {
	if m, ok := message.MessageFromContext(ctx); !ok || m != msg {
		ctx = msg.Context(ctx)
	}
	if d, ok := ctx.Value(deliveryKey{}).(*delivery); ok && d.msg == msg {
		return d
	}
	d := newDelivery(msg) // a copied message holds the delivery of its original, which is not its own
	msg.WithValue(deliveryKey{}, &d)
	return &d
}

// tagOf returns the tag and the aggregate of a message. It returns an error if the message has neither an aggregate nor a stream
// with a tag.
func (t *Transactor) tagOf(msg *message.Message) (tag, aggregate string, err error) {
	aggregate, err = t.cfg.Aggregate(msg)
	if err != nil {
		return "", "", fmt.Errorf("luatx: Config.Aggregate: %w", err)
	}
	if aggregate != "" {
		tag, err = t.cfg.Keyspace.Tag(aggregate)
		return tag, aggregate, err
	}
	if source, ok := msg.InputSource(); ok {
		if tag, ok := tagIn(source.Stream); ok {
			return tag, "", nil
		}
	}
	return "", "", fmt.Errorf("luatx: message %q has no aggregate; set its subject, or Config.Aggregate", msg.ID())
}
