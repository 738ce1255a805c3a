package inbox

import (
	"context"
	"fmt"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/identity"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/mark"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/message"
)

// PositionConfig configures an inbox of positions. The zero value is usable.
type PositionConfig struct {
	// Scope names the handler for which a message counts once. Defaults to the namespace of the Transactor and the name of the
	// handler. It must keep its value, because the positions of another scope begin anew.
	Scope string
	// MessageID returns the identity of a message, from which the ids of derived events come. Defaults to message.IdentityOf: source
	// and id. A message without an identity is parked.
	MessageID func(*message.Message) (message.Identity, error)
	// MaxAttempts is the number of failures of a message in one tenure of its partition, from 1, after which it is parked. Defaults to
	// 0: only permanent errors park a message.
	MaxAttempts int
	// DeadLetter names the stream of parked messages in the slot of each message. Defaults to the stream's own dead-letter stream
	// (stream.DeadLetterKey) if the message comes from a Redis stream, and to the source's name followed by ":dead" otherwise.
	DeadLetter string
}

// Position makes the commit move the position of each message's partition, instead of remembering the message's id. A message at or
// below the position is a duplicate, which is acknowledged. The inbox needs a few bytes for each partition and slot, however many
// messages there are. Place it where Middleware would be.
//
// The messages must have a message.Position, and their source must keep order: a message.WiringError says at start if the Engine's
// subscriber does not. A message from a Redis stream must have its keys in the slot of the stream; otherwise Position returns a
// WiringError, and the message is not acknowledged. If a message fails, the source delivers it again before any later one of its partition. If it fails for good,
// with a permanent error or after MaxAttempts, Position parks it: the commit moves the position, writes none of the handler's writes,
// and adds the message with its error to a dead-letter stream.
//
// A commit returns luatx.ErrFenced after a newer owner of the partition has committed, a *message.EarlyError if an earlier message is
// not committed, and a *message.EpochError if the source counts from the beginning again.
func Position(cfg PositionConfig) message.Middleware {
	if cfg.MessageID == nil {
		cfg.MessageID = message.IdentityOf
	}
	invalid := cfg.validate()
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			if invalid != nil {
				return nil, invalid
			}
			if err := cfg.claim(ctx, msg); err != nil {
				return nil, fmt.Errorf("inbox: %w", err)
			}
			return next(mark.With(ctx, mark.Inbox), msg)
		}
	}, message.Traits{Name: "inbox.Position", Inbox: true, Ordered: true, Inside: func([]message.Traits) error { return invalid }})
}

func (cfg PositionConfig) validate() error {
	if cfg.MaxAttempts < 0 {
		return fmt.Errorf("inbox: PositionConfig.MaxAttempts is %d; use 0 for no limit, or more", cfg.MaxAttempts)
	}
	return nil
}

// errNoPosition is the error for a message whose source keeps no order.
var errNoPosition = &message.WiringError{
	Problem: "inbox.Position got a message without a message.Position, which it would apply again after every redelivery",
	Remedy:  "read from a source that keeps order, such as a stream.PartitionedSubscriber, or use inbox.Middleware",
}

// errOtherSlot is the error for an entry of a stream in another slot than its position. A failover could lose the newest entries of the
// stream and keep the position. If the clock of the new master is behind, later entries then get ids at or below the position. Keys of
// one slot share their history, so a position in the slot of its stream is never above the stream's last id.
var errOtherSlot = &message.WiringError{
	Problem: "inbox.Position got a message from a stream in another slot than its keys; after a failover of the stream, it could take new messages for duplicates",
	Remedy:  "let PublisherConfig.Aggregate, PartitionedConfig.Aggregate and luatx.Config.Aggregate return the same aggregate, or use inbox.Middleware",
}

// claim makes the transaction of a message move its position.
func (cfg PositionConfig) claim(ctx context.Context, msg *message.Message) error {
	tx, ok := luatx.TxFromContext(ctx)
	if !ok {
		return misplaced(ctx, "inbox.Position")
	}
	at, ok := msg.Position()
	if !ok {
		return errNoPosition
	}
	if err := at.Validate(); err != nil {
		return message.Permanent(err)
	}
	source, entry := msg.InputSource()
	if entry && slot.Of(source.Stream) != slot.OfTag(tx.Tag()) {
		return errOtherSlot
	}
	scope := cfg.Scope
	if scope == "" {
		handler, _ := message.HandlerNameFromContext(ctx)
		scope = tx.Namespace() + "/" + handler
	}
	p := &place{cfg: &cfg, tx: tx, msg: msg, at: at, field: shard.PositionField(scope, at.Source, at.Partition)}
	p.tenure = tenureOf(at.Tenure, tx.Namespace(), p.field)
	together, own := claimsOf(at.Tenure, tx.Namespace()), claim{p.field, at.After}
	together.add(at.Offset, own)
	after := func() string {
		front := together.before(own)
		if entry && front == "" {
			// If a failover loses the last commit of this tenure, the entry of that commit is pending again and must come first.
			return p.tenure.before(at.Offset)
		}
		return front
	}
	generation, err := p.generation(ctx)
	if err != nil {
		return err
	}
	found, unidentified := identity.Of(cfg.MessageID, msg)
	if unidentified != nil {
		found = message.Identity{Source: at.Source, ID: at.Partition + "/" + at.Offset}
	}
	if err := tx.Claim(luatx.MessageID{Scope: scope, Source: found.Source, ID: found.ID}); err != nil {
		return err
	}
	link.SetClaim(tx, &link.Claim{
		Position:  commit.Position{Field: p.field, Offset: at.Offset, Owner: commit.OwnerOf(generation, at.Epoch)},
		After:     after,
		At:        at,
		Failed:    p.failed,
		Committed: func() { p.tenure.pass(at.Offset) },
		Fenced:    p.fenced,
	})
	return unidentified
}

// place is the position of a message that is being handled.
type place struct {
	cfg    *PositionConfig
	tx     *luatx.Tx
	msg    *message.Message
	at     message.Position
	field  string
	tenure *tenure
}

// generation returns the generation of the tenure under which the message was read.
func (p *place) generation(ctx context.Context) (int64, error) {
	inside := link.InsideOf(p.tx)
	generation, err := p.tenure.generationBy(ctx, func(ctx context.Context) (int64, error) {
		own := slot.OfTag(p.tx.Tag())
		stored, err := inside.Scripts.PositionIn(ctx, []int{own}, p.field) // a failover may have lost the counter alone
		if err != nil {
			return 0, err
		}
		return inside.Scripts.Generation(ctx, inside.First, p.field, !p.at.Tenure.Shared, stored[own].Generation)
	})
	if err != nil {
		return 0, fmt.Errorf("generation of source %q, partition %q: %w", p.at.Source, p.at.Partition, err)
	}
	return generation, nil
}

// fenced lets a shared tenure get the generation anew, because only an operator has made a newer one.
func (p *place) fenced() {
	if p.at.Tenure.Shared {
		p.tenure.forget()
	}
}

// failed implements link.Claim.Failed.
func (p *place) failed(ctx context.Context, cause error) (key string, letter []any, ok bool) {
	attempts := p.tenure.fail(p.at.Offset)
	if !message.IsPermanent(cause) && (p.cfg.MaxAttempts == 0 || attempts < p.cfg.MaxAttempts) {
		return "", nil, false
	}
	key, letter, err := p.letter(ctx, cause, attempts)
	if err != nil {
		link.InsideOf(p.tx).Runner.Log().Error("luatx: message cannot be written as a dead letter", "id", p.msg.ID(), "error", err)
		return "", nil, false
	}
	return key, letter, true
}
