package admin

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Left describes the unfinished work of a shard, which must be done before the service changes to another keyspace.
type Left struct {
	Slot int `json:"slot"`
	// Pending, Leased, Waiting and Parked are those of outbox.Counts: Pending includes the leased events.
	Pending int64 `json:"pending"`
	Leased  int64 `json:"leased"`
	Waiting int64 `json:"waiting"`
	Parked  int64 `json:"parked"`
	// Timer is the time at which the first open timer is due. It is zero if there is none.
	Timer time.Time `json:"timer,omitzero"`
}

// Drain returns the unfinished work in the shards of the Transactor's keyspace, by their slots, and the given input streams
// that do not exist or that their groups have not read to the end. It does not count dead letters.
//
// Call it before you change the number of partitions, or between Partitions and OwnTags. After new input has stopped, wait until
// nothing is left, and retry or discard the dead letters of partitioned streams. Then use another namespace for the new keyspace:
// drained shards keep their inbox, and return luatx.ErrKeyspace to other keyspaces. The ids of the inbox do not move to the new
// namespace. If a message that was applied before the change is redelivered after it, it is applied again.
func (o *Operator) Drain(ctx context.Context, streams ...string) (shards []Left, unread []StreamState, err error) {
	for chunk := range slices.Chunk(o.transactor.Keyspace().Slots(), slotsAtOnce) {
		left, err := o.left(ctx, chunk)
		if err != nil {
			return nil, nil, fmt.Errorf("admin: drain from slot %d: %w", chunk[0], err)
		}
		shards = append(shards, left...)
	}
	for s, err := range o.Streams(ctx, streams...) {
		if err != nil {
			return nil, nil, err
		}
		if !s.drained() {
			unread = append(unread, s)
		}
	}
	return shards, unread, nil
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
