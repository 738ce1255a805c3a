package commit

import (
	"context"
	"fmt"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/shard"
)

// Entrance is the result of enqueueing events outside of a transaction.
type Entrance struct {
	State State // Committed, Full, Failed (another body) or Identity
	New   int   // number of new events
	Woken bool  // the shard had no events before, and has some now
	Text  string
	Index int // failed: the position of the event, from 1
}

// EnqueueError is the error of a server or a shard that did not accept events. Errors of the events themselves are not wrapped in
// it. Its text is that of its cause.
type EnqueueError struct{ Err error }

func (e *EnqueueError) Error() string { return e.Err.Error() }
func (e *EnqueueError) Unwrap() error { return e.Err }

// Enqueue adds events to a shard's outbox, either all or none.
func (s *Sender) Enqueue(ctx context.Context, home shard.Shard, events []shard.Event) (Entrance, error) {
	entrance := home.EntranceKeys()
	keys := make([]string, 0, shard.CommitKeys+len(entrance))
	for _, key := range home.CommitKeys() {
		keys = append(keys, eval.Word(key))
	}
	args := make([]any, 0, 3*len(events))
	for i := range events {
		args = events[i].Append(args, true)
	}
	reply, err := s.runner.Eval(ctx, s.enqueue, append(keys, entrance[:]...), args)
	if err != nil {
		return Entrance{}, err
	}
	_, rows, err := eval.Timed(reply)
	if err != nil || len(rows) < 2 {
		return Entrance{}, eval.Malformed("enqueue", reply)
	}
	switch eval.Word(rows[0]) {
	case "enqueued":
		return Entrance{State: Committed, New: eval.Number(rows[1]), Woken: len(rows) > 2 && eval.Number(rows[2]) == 1}, nil
	case "full":
		return Entrance{State: Full, Text: eval.Word(rows[1])}, nil
	case "other":
		return Entrance{State: Failed, Index: eval.Number(rows[1]), Text: "the event exists with another body"}, nil
	case string(Identity):
		return Entrance{State: Identity, Text: fmt.Sprint(rows[1])}, nil
	}
	return Entrance{}, eval.Malformed("enqueue", reply)
}
