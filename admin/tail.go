package admin

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/luatx/luatx/outbox"
)

// tailWindow is how far each query of Tail reads back behind the beginning of the last complete one, because the clocks of servers
// differ and a page is not a snapshot.
const tailWindow = 10 * time.Second

// sighting is an event that Tail has yielded.
type sighting struct {
	slot  int
	id    string
	state outbox.State
	at    int64
}

// Tail lists events as they are parked and sent, from now on, until ctx ends. It queries the server once per interval. Sent events
// come without their bodies. Tail misses an event that was forgotten between two queries. It yields an error of the server without
// an event, and continues with the next query, which also lists the events of the time that the failed query did not list.
func (o *Operator) Tail(ctx context.Context, every time.Duration) iter.Seq2[outbox.Event, error] {
	return func(yield func(outbox.Event, error) bool) {
		if every <= 0 {
			yield(outbox.Event{}, fmt.Errorf("admin: tail: the interval %v is not positive; use more than 0", every))
			return
		}
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		t := tail{operator: o, seen: map[sighting]bool{}}
		for t.look(ctx, yield) {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}
}

type tail struct {
	operator *Operator
	begun    time.Time // by the server's clock
	last     time.Time // when the last complete query began
	seen     map[sighting]bool
}

// look yields new events, and reports whether the reader goes on.
func (t *tail) look(ctx context.Context, yield func(outbox.Event, error) bool) bool {
	now, err := t.operator.core.Client.Time(ctx).Result()
	if err != nil {
		return ctx.Err() == nil && yield(outbox.Event{}, fmt.Errorf("admin: tail: %w", err))
	}
	if t.begun.IsZero() {
		t.begun, t.last = now, now
	}
	since := t.last.Add(-tailWindow)
	if since.Before(t.begun) {
		since = t.begun
	}
	complete := true
	for _, state := range []outbox.State{outbox.Parked, outbox.Sent} {
		for e, err := range t.operator.core.Store.List(ctx, state, outbox.ListOptions{NoBodies: state == outbox.Sent, Since: since}) {
			s := sighting{e.Slot, e.ID, state, e.At.UnixMilli()}
			if e.ID != "" && t.seen[s] {
				continue
			}
			if ctx.Err() != nil || !yield(e, err) {
				return false
			}
			if e.ID != "" {
				t.seen[s] = true
			} else {
				complete = false
			}
		}
	}
	for s := range t.seen {
		if s.at < since.UnixMilli() {
			delete(t.seen, s)
		}
	}
	if complete {
		t.last = now
	}
	return ctx.Err() == nil
}
