package history

import (
	"context"
	"slices"
	"time"

	"github.com/luatx/luatx/internal/shard"
)

// Gauges are measurements of the outbox. An interval contains the maximum of each.
type Gauges struct {
	// Oldest is the age of the oldest event that should be published already; see admin.Stats.OldestUnpublished.
	Oldest time.Duration
	// Events is the number of pending and waiting events, and Bytes the size of their bodies.
	Events, Bytes int64
	// Parked is the number of parked events, and Blocked the number of events that wait behind them.
	Parked, Blocked int64
	// Full is the fill level of the fullest shard, in percent.
	Full int64
	// Enqueued is the number of events that were ever enqueued.
	Enqueued int64
}

// The fields of the gauges.
const (
	fieldOldest   = "oldest" // ms
	fieldEvents   = "events"
	fieldBytes    = "bytes"
	fieldParked   = "parked"
	fieldBlocked  = "blocked"
	fieldFull     = "full"
	fieldEnqueued = "enqueued"
)

func (g Gauges) pairs() []any {
	return []any{
		fieldOldest, g.Oldest.Milliseconds(), fieldEvents, g.Events, fieldBytes, g.Bytes, fieldParked, g.Parked,
		fieldBlocked, g.Blocked, fieldFull, g.Full, fieldEnqueued, g.Enqueued,
	}
}

// Limits are the capacities of a shard.
type Limits struct{ Events, Bytes, Parked int }

// slotsAtOnce is the number of shards that one pipeline reads.
const slotsAtOnce = 256

// look measures the outbox. An empty shard needs only one command.
func (h *History) look(ctx context.Context) (g Gauges, err error) {
	now, err := h.cfg.Client.Time(ctx).Result()
	if err != nil {
		return g, err
	}
	var pending, parked []int
	for chunk := range slices.Chunk(h.cfg.Slots(), slotsAtOnce) {
		counts, err := h.cfg.Scripts.Counts(ctx, chunk)
		if err != nil {
			return g, err
		}
		for n, c := range counts {
			g.add(c, h.cfg.Limits)
			if c.Pending > 0 {
				pending = append(pending, n)
			}
			if c.Parked > 0 {
				parked = append(parked, n)
			}
		}
	}
	since, err := h.oldest(ctx, pending)
	if err != nil {
		return g, err
	}
	blocked, err := h.cfg.Scripts.Blocked(ctx, parked)
	if err != nil {
		return g, err
	}
	g.Blocked = blocked.Events
	if since = earlier(since, blocked.Since); !since.IsZero() {
		g.Oldest = max(0, now.Sub(since))
	}
	return g, nil
}

// oldest returns the earliest time since which an event of shards with pending events has been due or has failed. It is
// zero if there is no such event.
func (h *History) oldest(ctx context.Context, slots []int) (since time.Time, err error) {
	for chunk := range slices.Chunk(slots, slotsAtOnce) {
		firsts, err := h.cfg.Scripts.Firsts(ctx, chunk)
		if err != nil {
			return since, err
		}
		for _, first := range firsts {
			since = earlier(since, first.At)
		}
	}
	failing, err := h.cfg.Scripts.FailingSince(ctx, slots)
	return earlier(since, failing), err
}

// earlier returns the earlier one of two times. It ignores a zero time.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (g *Gauges) add(c shard.Counts, limits Limits) {
	g.Events += c.Events()
	g.Bytes += c.Totals["bytes"]
	g.Parked += c.Parked
	g.Enqueued += c.Totals["enqueued"]
	for _, fill := range []struct {
		amount int64
		limit  int
	}{{c.Events(), limits.Events}, {c.Totals["bytes"], limits.Bytes}, {c.Parked, limits.Parked}} {
		if fill.limit > 0 {
			g.Full = max(g.Full, 100*fill.amount/int64(fill.limit))
		}
	}
}
