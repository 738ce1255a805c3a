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

// EarlyError is returned if the message in front of a message of the same partition is not committed yet. Nothing was written.
// Deliver the message again after the one in front of it.
type EarlyError struct {
	// After is the offset that must be committed first.
	After string
	// Committed is the offset that is committed, or empty if none is.
	Committed string
}

// Error names both offsets.
func (e *EarlyError) Error() string {
	return fmt.Sprintf("luatx: commit: the message at %s in front of this one is not committed, only %q is; deliver it first", e.After, e.Committed)
}

// Untried returns true, because the message itself did not fail.
func (e *EarlyError) Untried() bool { return true }

// EpochError is returned if the source has another epoch than the position that the shard has stored, because the source counts its
// messages from the beginning again. Nothing was written.
type EpochError struct {
	// Source and Partition are those of the message.
	Source, Partition string
	// Stored is the epoch of the position, and Found that of the message.
	Stored, Found string
}

// Error names the epochs and the remedy.
func (e *EpochError) Error() string {
	return fmt.Sprintf("luatx: commit: source %q, partition %q has epoch %q, and its position has epoch %q; if the source was created anew, rewind the position to the beginning (luatx inbox position, or admin.Operator.Rewind), or else connect to the former source",
		e.Source, e.Partition, e.Found, e.Stored)
}

// Untried returns true, because the message itself did not fail.
func (e *EpochError) Untried() bool { return true }

// orderError returns the error of a transaction whose position was not moved.
func (tx *Tx) orderError(out *commit.Outcome) error {
	claim := link.ClaimOf(tx)
	if claim == nil {
		claim = &link.Claim{} // of a receipt
	}
	if out.State == commit.Early {
		return &EarlyError{After: claim.Position.After, Committed: out.Text}
	}
	return &EpochError{Source: claim.At.Source, Partition: claim.At.Partition, Stored: out.Text, Found: claim.At.Epoch}
}

// overtook reports whether the server had a transaction before the one in front of it, which has committed since. Requests that are
// repeated may travel separately.
func (tx *Tx) overtook(batch []*Tx) bool {
	own := tx.commit.Position
	if own == nil || tx.commit.Err != nil || tx.commit.Outcome.State != commit.Early {
		return false
	}
	return slices.ContainsFunc(batch, func(other *Tx) bool {
		p := other.commit.Position
		return p != nil && p.Field == own.Field && p.Offset == own.After && other.commit.Err == nil && outcomes[other.commit.Outcome.State] != 0
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
