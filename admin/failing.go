package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/outbox"
)

const (
	// failingPage is how many events of a shard are looked at for failures, leased ones first, and then those whose next attempt
	// comes first.
	failingPage = 100
	// failingShards is the number of shards that are looked at.
	failingShards = 100
)

// failingSince returns the time of the first failure that is remembered of the events that relays try again. A lease and a next
// attempt hide how long such an event has been there. It is zero if no such event was found.
func (o *Operator) failingSince(ctx context.Context) (since time.Time, err error) {
	looked := 0
	for chunk := range slices.Chunk(o.transactor.Keyspace().Slots(), slotsAtOnce) {
		slots, err := o.scripts.HasFailures(ctx, chunk)
		if err == nil && len(slots) > 0 {
			slots, err = o.scripts.Waiting(ctx, slots)
		}
		if err != nil {
			return since, fmt.Errorf("admin: failed events: %w", err)
		}
		for _, n := range slots {
			if looked++; looked > failingShards {
				return since, nil
			}
			if since, err = o.failingIn(ctx, n, since); err != nil {
				return since, err
			}
		}
	}
	return since, nil
}

// failingIn returns the earlier one of a time and the first failure in a shard.
func (o *Operator) failingIn(ctx context.Context, n int, since time.Time) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, o.transactor.Config().CommitTimeout)
	defer cancel()
	rows, _, _, _, err := o.scripts.List(ctx, o.scripts.Shard(n), shard.Listing{Of: "pending", Limit: failingPage})
	if err != nil {
		return since, &outbox.StorageError{Op: "failed events", Slot: n, Err: err}
	}
	for _, row := range rows {
		if first := firstFailure(row); !first.IsZero() && (since.IsZero() || first.Before(since)) {
			since = first
		}
	}
	return since, nil
}

// firstFailure returns the time of the first failure that is remembered since the event came or was re-armed: the history has those
// before, too. Attempts are counted anew then. It is zero if there is none.
func firstFailure(row shard.Listed) (first time.Time) {
	next := row.Attempts + 1
	if row.Lease != "" {
		next-- // the attempt of the lease has not failed yet
	}
	for _, f := range row.Failures {
		if f.Attempt >= next {
			break
		}
		first, next = f.At, f.Attempt
	}
	return first
}
