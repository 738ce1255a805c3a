package luatx

import (
	"errors"
	"fmt"
)

// What became of a transaction that did not commit, and what to do about it. Test with errors.Is.
var (
	// ErrNotCommitted is the error of a recorded command whose reply decides (reads, INCR, SETNX, LPOP …) until
	// the transaction has committed: there is no reply yet. An adapter that does not need the reply says so by
	// Queued; one that does must read before the transaction.
	ErrNotCommitted = errors.New("luatx: the command is recorded and has no reply before the commit")

	// ErrTxClosed is returned by a transaction, and by every command on it, after its function has returned.
	// Nothing is recorded: do not keep the transaction, nor what CmdableFromContext gave, beyond the handler.
	ErrTxClosed = errors.New("luatx: the transaction is closed")

	// ErrNested is returned where a transaction is begun, executed or wrapped inside another. Leave one out.
	ErrNested = errors.New("luatx: there is a transaction already")

	// ErrCrossSlot is returned when a key does not share the slot of the transaction's tag, before anything is
	// sent, on a single server too. Build keys with Keyspace.Key, or emit an event for the other aggregate.
	ErrCrossSlot = errors.New("luatx: key of another slot")

	// ErrCommandRefused is returned for a command that cannot stand in a transaction.
	ErrCommandRefused = errors.New("luatx: command refused in a transaction")

	// ErrTooLarge is returned for a transaction beyond a limit of its Config. Split it.
	ErrTooLarge = errors.New("luatx: transaction too large")

	// ErrFenced is returned when another consumer has claimed the input, and when a consumer has dead-lettered it. Nothing was
	// written. The Middleware releases the message: it is neither acknowledged nor nacked.
	//
	// With an inbox, a commit notices claims of luatx only, for 48 hours after the claim. It does not notice claims of other
	// programs in the same group, or a group that was deleted. Without an inbox, it notices all of them.
	ErrFenced = errors.New("luatx: the input belongs to another consumer now")

	// ErrConflict is returned when what a guarded read had returned has changed before the commit, and the handler
	// had run as often as Config.ConflictRetries allows. Nothing was written; try again, or use a procedure, which
	// reads and writes at once.
	ErrConflict = errors.New("luatx: what was read has changed")

	// ErrReadAfterWrite is returned by a guarded read of a key that the transaction has a recorded write for: the
	// write has not happened yet. Read first, or use a procedure.
	ErrReadAfterWrite = errors.New("luatx: read of a key that is written in this transaction")

	// ErrOutboxFull is returned, in an OutboxFullError, when the shard's outbox has no room for the events. Nothing was
	// written; try again when the relay has caught up.
	ErrOutboxFull = errors.New("luatx: the outbox is full")

	// ErrExpired is returned when the commit reached the server too late to be let in. Nothing was written, and
	// no copy of it can be any more: try again.
	ErrExpired = errors.New("luatx: the commit came too late")

	// ErrOutcomeUnknown is returned, by a commit in an UnknownError, when the deadline passed after the commit was sent and
	// before it was answered. It may have committed, or may still. Resolve tells, by the error's receipt; or
	// repeat the call or delivery with the same id: it has its effect once.
	ErrOutcomeUnknown = errors.New("luatx: outcome unknown")

	// ErrReceiptExpired is returned by Resolve after the retention, when the inbox may have forgotten the commit: it may be
	// in or not. Look at the data.
	ErrReceiptExpired = errors.New("the receipt is older than the retention: the commit may have been forgotten; look at the data")

	// ErrReceiptForeign is returned by Resolve for a receipt of another namespace. Use a Transactor of that namespace.
	ErrReceiptForeign = errors.New("the receipt is of another namespace")

	// ErrReceiptInvalid is returned by Resolve for a text that is not a receipt, or not a whole one. Store the receipt of an
	// UnknownError as it is.
	ErrReceiptInvalid = errors.New("not a receipt; use the one of an UnknownError as it is")

	// ErrKeyspace is returned when the shard was written with another layout, namespace or keyspace. Deploy the
	// keyspace it was written with, or drain it first.
	ErrKeyspace = errors.New("luatx: the shard belongs to another keyspace")

	// ErrRepliesLost is the error of a command whose transaction committed under an earlier request, the reply
	// to which was lost: the effect is there, the replies are not. KeepReplies keeps them.
	ErrRepliesLost = errors.New("luatx: committed by an earlier request, whose replies are lost")
)

// CommandError is a command that the server refused inside the transaction. Everything was undone.
type CommandError struct {
	// Index of the command among those recorded, from 0; negative: the event -Index-1.
	Index int
	// Command is its name; empty for an event.
	Command string
	// Text is the server's error.
	Text string
	// Remedy says what to do where the command is not at fault: the user lacks a right.
	Remedy string
}

func (e *CommandError) Error() string {
	text := fmt.Sprintf("luatx: command %d (%s): %s", e.Index, e.Command, e.Text)
	if e.Index < 0 {
		text = fmt.Sprintf("luatx: event %d: %s", -e.Index-1, e.Text)
	}
	if e.Remedy != "" {
		text += ": " + e.Remedy
	}
	return text
}

// OutboxFullError is the ErrOutboxFull of a shard and names the bound that was reached. Nothing was written.
type OutboxFullError struct {
	// What names the bound: events (Config.OutboxCapacity), bytes (OutboxBytes), lane (LaneCapacity, for the events of one
	// ordering key), parked (ParkedCapacity) or parked bytes (ParkedBytes). An operator must act on the last two.
	What string
	// Limit is the configured one.
	Limit int
	// Slot is that of the shard.
	Slot int
}

func (e *OutboxFullError) Error() string {
	text := fmt.Sprintf("%v: slot %d: ", ErrOutboxFull, e.Slot)
	switch e.What {
	case "bytes":
		return text + fmt.Sprintf("%d bytes may wait", e.Limit)
	case "parked":
		return text + fmt.Sprintf("%d events are parked: re-arm or discard them", e.Limit)
	case "parked bytes":
		return text + fmt.Sprintf("parked events have %d bytes: re-arm or discard them", e.Limit)
	case "lane":
		return text + fmt.Sprintf("%d events of one ordering key may wait", e.Limit)
	}
	return text + fmt.Sprintf("%d events may wait", e.Limit)
}

// Is makes errors.Is find ErrOutboxFull.
func (e *OutboxFullError) Is(target error) bool { return target == ErrOutboxFull }

// AbortError is a transaction that a procedure ended with abort or reject. Everything was undone, and the id, if there
// is one, may be used again.
//
// Middleware returns it to the router, which nacks the message: the source delivers the message again, after its backoff,
// until its limit of deliveries (MaxDeliveries) makes it a dead letter. After reject the error is permanent as well
// (message.IsPermanent): the source does not deliver the message again, and makes it a dead letter at once if it has a place
// for those.
type AbortError struct {
	// Index of the procedure among the recorded commands, from 0.
	Index int
	// Procedure is its name.
	Procedure string
	// Reason is the text that it passed to abort or reject.
	Reason string
	// Permanent reports whether it called reject: repeating the transaction is useless.
	Permanent bool
}

func (e *AbortError) Error() string {
	return fmt.Sprintf("luatx: procedure %s aborted: %s", e.Procedure, e.Reason)
}

// RollbackError is a transaction of which a command failed and whose undo failed too. Its id is marked as
// broken: every redelivery gets this error, until an operator has looked.
type RollbackError struct {
	// Text says which command failed and what could not be restored.
	Text string
}

func (e *RollbackError) Error() string { return "luatx: rollback failed: " + e.Text }
