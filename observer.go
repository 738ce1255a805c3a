package luatx

import (
	"context"
	"errors"
	"time"

	"github.com/luatx/luatx/internal/observe"
)

// Observer receives the outcomes of commits, for metrics and traces. A nil function is not called and costs nothing.
//
// The functions run in the committing goroutine, outside of locks, when the outcome is certain. A slow function delays only that
// caller and does not change the outcome. Several goroutines call the functions at the same time. A panic is logged.
type Observer struct {
	// Committed is called for each commit, successful or not: once for every run of a handler, or of the function of a call, that
	// had something to commit. The context is the committer's; message.MessageFromContext returns the message of a handler.
	Committed func(ctx context.Context, c Commit)
}

// And returns an Observer that calls o and then other.
func (o Observer) And(other Observer) Observer {
	return Observer{Committed: observe.Both(o.Committed, other.Committed)}
}

// Commit describes the outcome of one transaction.
type Commit struct {
	// Namespace is the Transactor's namespace, and Slot is the shard's slot.
	Namespace string
	Slot      int
	// Began is the time at which the transaction's function had returned. Duration is the time from then until the outcome was
	// known, including waits for other transactions, round trips, pauses and requests for an unknown outcome.
	Began    time.Time
	Duration time.Duration
	// Attempts is the number of round trips that were begun for the transaction, or 0 if it was rejected before the first one.
	// Batch is the number of transactions that shared the script of the last one, including this one.
	Attempts, Batch int
	// Commands and Events are the numbers of recorded ones. Events includes those that procedures emitted.
	Commands, Events int
	// Acknowledged reports whether the same script acknowledged the input.
	Acknowledged bool
	// Result is the zero Result if Err is not nil.
	Result Result
	// Err is the error that the caller gets. It is nil if the effect is there once.
	Err error
}

// Outcome returns the outcome as one word, for labels of metrics. The outcome is committed, replayed, duplicate, conflict,
// fenced, full, expired, unknown, keyspace or error. It is broken if the undo failed, and failed if the server rejected a
// command and the script undid everything. It is aborted by a procedure, denied if the server does not accept the commit, and
// refused if the recorded commands may not be committed.
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

// observed calls the Observer with the outcome of a transaction.
func (t *Transactor) observed(ctx context.Context, tx *Tx) {
	sent := &tx.commit
	c := Commit{
		Namespace: t.cfg.Namespace, Slot: sent.Shard.Slot,
		Began: tx.began, Duration: time.Since(tx.began),
		Attempts: int(sent.Tries), Batch: int(sent.Batch),
		Commands: len(tx.cmds), Events: len(sent.Events) + len(sent.Outcome.Emitted),
		Err: tx.err,
	}
	if tx.err == nil {
		c.Result = Result{Outcome: outcomes[sent.Outcome.State], Replicated: sent.Replicated}
		c.Acknowledged = sent.Outcome.Acked
	}
	observe.Tell(ctx, t.cfg.Logger, t.cfg.Observer.Committed, c)
}
