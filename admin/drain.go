package admin

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Left is what a shard still holds that must be done before its keyspace is given up.
type Left struct {
	Slot int `json:"slot"`
	// Pending, Leased, Waiting and Parked are those of outbox.Counts: Pending includes the leased events.
	Pending int64 `json:"pending"`
	Leased  int64 `json:"leased"`
	Waiting int64 `json:"waiting"`
	Parked  int64 `json:"parked"`
	// Timer is when its first open timer is due; zero: there is none.
	Timer time.Time `json:"timer,omitzero"`
}

// Drain is how far a keyspace is from being given up.
type Drain struct {
	// Shards are those that hold something, by their slots.
	Shards []Left
	// Streams are those that were asked for and that groups have not read to the end.
	Streams []StreamState
}

// Done reports whether nothing is left.
func (d Drain) Done() bool { return len(d.Shards) == 0 && len(d.Streams) == 0 }

// Drain tells what is left in the shards of the Transactor's keyspace, and in the input streams given, before the number
// of partitions is changed: with new input stopped, the change is safe when it is Done. Ids that the inbox knows do not
// move along: a message that was applied under the old number is applied again if it comes back under the new one.
func (o *Operator) Drain(ctx context.Context, streams ...string) (Drain, error) {
	var d Drain
	for chunk := range slices.Chunk(o.transactor.Keyspace().Slots(), slotsAtOnce) {
		left, err := o.left(ctx, chunk)
		if err != nil {
			return d, fmt.Errorf("admin: drain, from slot %d on: %w", chunk[0], err)
		}
		d.Shards = append(d.Shards, left...)
	}
	for s, err := range o.Streams(ctx, streams...) {
		if err != nil {
			return d, err
		}
		if !s.Drained() {
			d.Streams = append(d.Streams, s)
		}
	}
	return d, nil
}

func (o *Operator) left(ctx context.Context, slots []int) ([]Left, error) {
	counts, err := o.scripts.Counts(ctx, slots)
	if err != nil {
		return nil, err
	}
	timers, err := o.scripts.FirstTimers(ctx, slots)
	if err != nil {
		return nil, err
	}
	var all []Left
	for _, n := range slots {
		c := counts[n]
		l := Left{
			Slot: n, Pending: c.Pending, Leased: c.Leased, Waiting: max(0, c.Entries-c.Pending-c.Parked-c.Sent), Parked: c.Parked,
			Timer: timers[n],
		}
		if l.Pending+l.Waiting+l.Parked > 0 || !l.Timer.IsZero() {
			all = append(all, l)
		}
	}
	return all, nil
}
