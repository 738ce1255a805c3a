// Package admin is what operators use, whichever way a service keeps its events.
package admin

import (
	"context"
	"iter"
	"time"

	"github.com/luatx/luatx/outbox"
)

// Backlog is an outbox as an operator sees it: what waits, what could not be published, and what can be done about it. An
// *outbox.Store is one, of events that relays publish; a *Stream is one, of events in a stream with dead letters.
type Backlog interface {
	// Counts tells how many events are in each state, as far as that is known.
	Counts(ctx context.Context) (outbox.Counts, error)
	// Parked lists what could not be published and stays until an operator acts. An event that cannot be decoded comes with
	// the error, and the list goes on; any other error ends it.
	Parked(ctx context.Context, f outbox.Filter) iter.Seq2[outbox.Event, error]
	// Rearm lets parked events of a slot be published again, and Discard removes them for good. Both are recorded.
	Rearm(ctx context.Context, slot int, ids ...string) (outbox.Answers, error)
	Discard(ctx context.Context, slot int, reason string, ids ...string) (outbox.Answers, error)
	// Audit lists what was done since a time, oldest first.
	Audit(ctx context.Context, since time.Time) iter.Seq2[outbox.Record, error]
}

var (
	_ Backlog = (*outbox.Store)(nil)
	_ Backlog = (*Stream)(nil)
)
