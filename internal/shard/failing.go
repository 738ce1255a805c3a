package shard

import (
	"context"
	"slices"
	"time"
)

const (
	// failingPage is the number of events of a shard that are read to find failures. The leased events come first, then
	// the events whose next attempt is the earliest.
	failingPage = 100
	// failingShards is the number of shards that are read.
	failingShards = 100
)

// FailingSince returns the time of the earliest stored failure among the events that relays retry. It reads the
// failures, because a lease or a scheduled attempt hides how long an event has existed. It is zero if there is no such
// event.
func (s *Scripts) FailingSince(ctx context.Context, slots []int) (since time.Time, err error) {
	looked := 0
	for chunk := range slices.Chunk(slots, slotsAtOnce) {
		failing, err := s.HasFailures(ctx, chunk)
		if err == nil && len(failing) > 0 {
			failing, err = s.Waiting(ctx, failing)
		}
		if err != nil {
			return since, err
		}
		for _, n := range failing {
			if looked++; looked > failingShards {
				return since, nil
			}
			if since, err = s.failingIn(ctx, n, since); err != nil {
				return since, err
			}
		}
	}
	return since, nil
}

// failingIn returns the earlier of since and the first failure in a shard.
func (s *Scripts) failingIn(ctx context.Context, n int, since time.Time) (time.Time, error) {
	page, err := s.List(ctx, s.Shard(n), Listing{Of: "pending", Limit: failingPage})
	if err != nil {
		return since, &SlotError{n, err}
	}
	for _, row := range page.Rows {
		if first := firstFailure(row); !first.IsZero() && (since.IsZero() || first.Before(since)) {
			since = first
		}
	}
	return since, nil
}

// firstFailure returns the time of the first stored failure since the event was added or re-armed. The history also
// contains earlier failures, but the count of attempts begins again. It is zero if there is none.
func firstFailure(row Listed) (first time.Time) {
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
