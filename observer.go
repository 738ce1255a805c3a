package luatx

import (
	"context"
	"errors"
	"time"

	"github.com/luatx/luatx/internal/observe"
)

// Observer is told what has happened, for metrics and traces. A function that is nil is not called, and costs nothing.
//
// The functions run in the goroutine of whoever commits, outside of locks, when the outcome is certain: a slow one holds
// up that caller alone, and changes nothing about the outcome. They are called by several goroutines at once. A panic
// ends in the log.
type Observer struct {
	// Committed is told of each commit, be it in or not: once for every run of a handler, or of the function of a call,
	// that had something to commit. The context is the committer's: message.MessageFromContext finds the message of a
	// handler.
	Committed func(ctx context.Context, c Commit)
}

// And returns an Observer that tells o and then other.
func (o Observer) And(other Observer) Observer {
	return Observer{Committed: observe.Both(o.Committed, other.Committed)}
}

// Commit is what became of one transaction.
type Commit struct {
	// Namespace is that of the Transactor, and Slot that of the shard.
	Namespace string
	Slot      int
	// Began is when the transaction's function had returned; Duration is how long it took from there until the outcome
	// was known: waiting for others, round trips, pauses and questions what became of it.
	Began    time.Time
	Duration time.Duration
	// Attempts is how many round trips were begun for it; 0 where it was refused before. Batch is how many transactions
	// shared the script of the last one, this one included.
	Attempts, Batch int
	// Commands and Events are how many were recorded; events that procedures emitted count.
	Commands, Events int
	// Acknowledged says that the input was acknowledged in the same script.
	Acknowledged bool
	// Result is the zero Result where Err is not nil.
	Result Result
	// Err is what the caller is told: nil where the effect is there once.
	Err error
}

// Outcome is what became of it in a word, for labels of metrics: committed, replayed, duplicate, conflict, fenced, full,
// expired, unknown, keyspace, broken (its undo failed), failed (the server refused a command, and all was undone), aborted
// (by a procedure), denied (the server lets nothing in), refused (what was recorded may not be committed) or error.
func (c Commit) Outcome() string {
	if c.Err == nil {
		return c.Result.Outcome.String()
	}
	for _, known := range outcomesOfErrors {
		if errors.Is(c.Err, known.err) {
			return known.word
		}
	}
	if _, is := errors.AsType[*RollbackError](c.Err); is {
		return "broken"
	}
	if _, is := errors.AsType[*CommandError](c.Err); is {
		return "failed"
	}
	if _, is := errors.AsType[*RefusedError](c.Err); is {
		return "denied"
	}
	if _, is := errors.AsType[*AbortError](c.Err); is {
		return "aborted"
	}
	return "error"
}

var outcomesOfErrors = []struct {
	err  error
	word string
}{
	{ErrConflict, "conflict"},
	{ErrFenced, "fenced"},
	{ErrOutboxFull, "full"},
	{ErrExpired, "expired"},
	{ErrOutcomeUnknown, "unknown"},
	{ErrKeyspace, "keyspace"},
	{ErrCrossSlot, "refused"},
	{ErrCommandRefused, "refused"},
	{ErrTooLarge, "refused"},
	{ErrReadAfterWrite, "refused"},
}
