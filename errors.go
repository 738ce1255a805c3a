package luatx

import (
	"errors"
	"fmt"
)

// Errors of transactions that did not commit. Test for them with errors.Is.
var (
	// ErrNotCommitted is the error of a recorded command whose result the caller may need (reads, INCR, SETNX, LPOP …) until the
	// transaction commits. An adapter that does not need the reply passes the command to Queued. An adapter that needs it must
	// read before the transaction.
	ErrNotCommitted = errors.New("luatx: the command is recorded and has no reply before the commit")

	// ErrTxClosed is returned by a transaction, and by every command on it, after its function has returned. The command is not
	// recorded. Do not use the transaction, or the result of CmdableFromContext, after the handler has returned.
	ErrTxClosed = errors.New("luatx: the transaction is closed")

	// ErrNested is returned if a transaction is begun, executed or wrapped inside another one. Remove one of the two.
	ErrNested = errors.New("luatx: there is a transaction already")

	// ErrCrossSlot is returned if a key does not share the slot of the transaction's tag, on a single server too, before anything
	// is sent. Build keys with Keyspace.Key, or emit an event for the other aggregate.
	ErrCrossSlot = errors.New("luatx: key of another slot")

	// ErrCommandRefused is returned for a command that is not allowed in a transaction.
	ErrCommandRefused = errors.New("luatx: command refused in a transaction")

	// ErrTooLarge is returned for a transaction that exceeds a limit of Config. Split it.
	ErrTooLarge = errors.New("luatx: transaction too large")

	// ErrFenced is returned if another consumer has claimed the input, or if a consumer has dead-lettered it. Nothing was
	// written. Middleware releases the message without acknowledging or nacking it.
	//
	// With an inbox, a commit notices only claims made by luatx, for 48 hours after the claim. It does not notice claims of other
	// programs in the same group, or a group that was deleted. Without an inbox, it notices all of them.
	ErrFenced = errors.New("luatx: the input belongs to another consumer now")

	// ErrConflict is returned if the reply to a guarded read changed before the commit and the handler has already run again
	// Config.ConflictRetries times. Nothing was written. Try again, or use a procedure, which reads and writes atomically.
	ErrConflict = errors.New("luatx: what was read has changed")

	// ErrReadAfterWrite is returned by a guarded read of a key for which the transaction has recorded a write, because the write
	// has not happened yet. Read first, or use a procedure.
	ErrReadAfterWrite = errors.New("luatx: read of a key that is written in this transaction")

	// ErrOutboxFull is returned, in an OutboxFullError, if the shard's outbox has no room for the events. Nothing was written.
	// Try again when the relay has caught up.
	ErrOutboxFull = errors.New("luatx: the outbox is full")

	// ErrExpired is returned if the commit reached the server after its deadline. Nothing was written, and no copy of the commit
	// can take effect any more. Try again.
	ErrExpired = errors.New("luatx: the commit came too late")

	// ErrOutcomeUnknown is returned, by a commit in an UnknownError, if the deadline passed after the commit was sent and before
	// the server replied. The commit may have taken effect, or may still do so. Pass the error's receipt to Resolve, or repeat
	// the call or delivery with the same id, which has its effect once.
	ErrOutcomeUnknown = errors.New("luatx: outcome unknown")

	// ErrReceiptExpired is returned by Resolve after the retention, when the inbox may have forgotten the commit. The commit may
	// have taken effect or not; check the data.
	ErrReceiptExpired = errors.New("the receipt is older than the retention: the commit may have been forgotten; look at the data")

	// ErrReceiptForeign is returned by Resolve for a receipt of another namespace. Use a Transactor of that namespace.
	ErrReceiptForeign = errors.New("the receipt is of another namespace")

	// ErrReceiptInvalid is returned by Resolve for a text that is not a complete receipt. Store the receipt of an UnknownError
	// unchanged.
	ErrReceiptInvalid = errors.New("not a receipt; use the one of an UnknownError as it is")

	// ErrKeyspace is returned if the shard was written with another layout, namespace or keyspace. Use the version and the
	// configuration that it was written with, or another Config.Namespace. A drained shard keeps its keyspace.
	ErrKeyspace = errors.New("luatx: the shard belongs to another keyspace")

	// ErrRepliesLost is the error of a command whose transaction was committed by an earlier request that got no reply. The
	// effect is there, but the replies are lost. KeepReplies stores them.
	ErrRepliesLost = errors.New("luatx: committed by an earlier request, whose replies are lost")
)

// CommandError is returned if the server rejected a command of the transaction. Everything was undone.
type CommandError struct {
	// Index is the position of the command among the recorded ones, from 0. A negative Index refers to the event -Index-1.
	Index int
	// Command is the command's name, or empty for an event.
	Command string
	// Text is the server's error.
	Text string
	// Remedy is the fix if the command is not at fault because the user lacks a right.
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

// OutboxFullError is the ErrOutboxFull of a shard. It names the limit that was reached. Nothing was written.
type OutboxFullError struct {
	// What names the limit: events (Config.OutboxCapacity), bytes (OutboxBytes), lane (LaneCapacity, for the events of one
	// ordering key), parked (ParkedCapacity) or parked bytes (ParkedBytes). The last two need an operator.
	What string
	// Limit is the configured value.
	Limit int
	// Slot is the slot of the shard.
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

// Is reports whether target is ErrOutboxFull.
func (e *OutboxFullError) Is(target error) bool { return target == ErrOutboxFull }

// AbortError is returned if a procedure ended the transaction with abort or reject. Everything was undone, and the id, if any,
// may be used again.
//
// Middleware returns it to the router, which nacks the message. After abort, the source delivers the message again after its
// backoff, until its delivery limit (MaxDeliveries) makes it a dead letter. After reject, the error is also permanent
// (message.IsPermanent): the source does not deliver the message again and, if it has a place for dead letters, moves it there at
// once.
type AbortError struct {
	// Index is the position of the procedure call among the recorded commands, from 0.
	Index int
	// Procedure is the procedure's name.
	Procedure string
	// Reason is the text that the procedure passed to abort or reject.
	Reason string
	// Permanent reports whether the procedure called reject, so that repeating the transaction is useless.
	Permanent bool
}

func (e *AbortError) Error() string {
	return fmt.Sprintf("luatx: procedure %s aborted: %s", e.Procedure, e.Reason)
}

// RollbackError is returned if a command of the transaction failed and the undo failed too. The id is marked as broken: every
// redelivery returns this error until an operator acts.
type RollbackError struct {
	// Text names the command that failed and what could not be restored.
	Text string
}

func (e *RollbackError) Error() string { return "luatx: rollback failed: " + e.Text }
