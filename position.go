package luatx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/message"
)

// orderError returns the error of a transaction whose position was not moved.
func (tx *Tx) orderError(out *commit.Outcome) error {
	claim := link.ClaimOf(tx)
	if claim == nil {
		claim = &link.Claim{} // of a receipt
	}
	if out.State == commit.Early {
		return &message.EarlyError{After: claim.Position.After, Committed: out.Text}
	}
	return &message.EpochError{Source: claim.At.Source, Partition: claim.At.Partition, Stored: out.Text, Found: claim.At.Epoch}
}

// early reports whether the server had a transaction before the one in front of it.
func (tx *Tx) early() bool {
	return tx.commit.Position != nil && tx.commit.Err == nil && tx.commit.Outcome.State == commit.Early
}

// follows reports whether the transaction in front of tx has committed since, or is to be sent again. Repeated requests may arrive
// out of order, because each travels separately.
func (tx *Tx) follows(batch, again []*Tx) bool {
	own := tx.commit.Position
	return slices.ContainsFunc(batch, func(other *Tx) bool {
		p := other.commit.Position
		return p != nil && p.Field == own.Field && p.Offset == own.After &&
			(slices.Contains(again, other) || other.err == nil && outcomes[other.commit.Outcome.State] != 0)
	})
}

// offset returns the offset of the position that the commit moves, or an empty text.
func (tx *Tx) offset() string {
	if claim := link.ClaimOf(tx); claim != nil {
		return claim.Position.Offset
	}
	return ""
}

// position returns the position that the commit moves instead of marking the id, or nil.
func (tx *Tx) position() *commit.Position {
	if claim := link.ClaimOf(tx); claim != nil {
		return &claim.Position
	}
	return nil
}

// park commits the dead letter of a message that has failed for good, together with its position. It returns cause if the message is
// to be delivered again.
func (t *Transactor) park(ctx context.Context, tx *Tx, msg *message.Message, cause error) error {
	claim := link.ClaimOf(tx)
	if claim == nil || !failed(cause) {
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

// failed reports whether an error is the fault of the message or its handler, rather than of the server or the order.
func failed(err error) bool {
	for _, other := range []error{ErrFenced, ErrConflict, ErrExpired, ErrOutcomeUnknown, ErrOutboxFull, ErrKeyspace, message.ErrStopped} {
		if errors.Is(err, other) {
			return false
		}
	}
	var refused *RefusedError
	var broken *RollbackError
	return !settle.IsUntried(err) && !errors.As(err, &refused) && !errors.As(err, &broken)
}
