package script

import (
	"context"
	"fmt"
	"time"
)

// Entrance is what became of events that were enqueued beside a transaction.
type Entrance struct {
	State State // Committed, Full, Failed (another body) or Identity
	New   int   // how many were not known yet
	Woken bool  // the shard had no events before, and has some now
	Text  string
	Index int // failed: which event, from 1
}

// EnqueueError is the error of a server or a shard that did not take events. Errors of the events themselves are not
// wrapped in it. Its text is that of its cause.
type EnqueueError struct{ Err error }

func (e *EnqueueError) Error() string { return e.Err.Error() }
func (e *EnqueueError) Unwrap() error { return e.Err }

// Enqueue puts events into a shard's outbox, all or none.
func (s *Set) Enqueue(ctx context.Context, shard Shard, events []Event) (Entrance, error) {
	keys := make([]string, 0, commitKeys+4)
	for _, key := range shard.commit {
		keys = append(keys, word(key))
	}
	args := make([]any, 0, 3*len(events))
	for i := range events {
		args = events[i].append(args, true)
	}
	reply, err := s.eval(ctx, &s.enqueue, append(keys, shard.entranceKeys()...), args)
	if err != nil {
		return Entrance{}, err
	}
	_, rows, err := timed(reply)
	if err != nil || len(rows) < 2 {
		return Entrance{}, malformed("enqueue", reply)
	}
	switch word(rows[0]) {
	case "enqueued":
		return Entrance{State: Committed, New: number(rows[1]), Woken: len(rows) > 2 && number(rows[2]) == 1}, nil
	case "full":
		return Entrance{State: Full, Text: word(rows[1])}, nil
	case "other":
		return Entrance{State: Failed, Index: number(rows[1]), Text: "the event exists with another body"}, nil
	case string(Identity):
		return Entrance{State: Identity, Text: fmt.Sprint(rows[1])}, nil
	}
	return Entrance{}, malformed("enqueue", reply)
}

// Schedule moves a scheduled event that no relay has taken to another time, or cancels it where that is zero, and
// reports whether it did.
func (s *Set) Schedule(ctx context.Context, shard Shard, id string, at time.Time) (bool, error) {
	text := ""
	if !at.IsZero() {
		text = millis(at)
	}
	reply, err := s.eval(ctx, &s.scheduled, shard.outboxKeys(), []any{id, text})
	if err != nil {
		return false, err
	}
	_, rows, err := ownTimed(shard, reply)
	if err != nil {
		return false, err
	}
	return number(rows[0]) == 1, nil
}
