package expiry

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

const (
	// shardsAtOnce is the number of shards that one round trip asks for timers.
	shardsAtOnce = 256
	maxLimit     = 10_000
)

// Due lists up to limit due timers of all shards by the server's clock, the oldest first. Limit is 1 to 10,000. Due reads all of
// them before it yields the first. A timer may be decided meanwhile; Decide then reports that. With OwnTags, Due visits all
// 16,384 slots, with one cheap command for an empty one.
func (s *Store) Due(ctx context.Context, limit int) iter.Seq2[Timer, error] {
	return func(yield func(Timer, error) bool) {
		timers, err := s.oldest(ctx, limit)
		if err != nil {
			yield(Timer{}, fmt.Errorf("expiry: due: %w", err))
			return
		}
		for _, timer := range timers {
			if !yield(timer, nil) {
				return
			}
		}
	}
}

func (s *Store) oldest(ctx context.Context, limit int) ([]Timer, error) {
	if limit < 1 || limit > maxLimit {
		return nil, fmt.Errorf("the limit is %d; use 1 to %d", limit, maxLimit)
	}
	var oldest []Timer
	for chunk := range slices.Chunk(s.keyspace.Slots(), shardsAtOnce) {
		first, err := s.scripts.FirstTimers(ctx, chunk)
		if err != nil {
			return nil, err
		}
		for n := range first {
			found, _, err := s.due(ctx, n, 0, limit)
			if err != nil {
				return nil, err
			}
			oldest = append(oldest, found...)
			if len(oldest) > 2*limit {
				oldest = cut(oldest, limit)
			}
		}
	}
	return cut(oldest, limit), nil
}

// cut keeps the oldest timers, up to limit.
func cut(timers []Timer, limit int) []Timer {
	slices.SortFunc(timers, func(a, b Timer) int {
		if c := a.Due.Compare(b.Due); c != 0 {
			return c
		}
		return strings.Compare(a.Subject, b.Subject)
	})
	return timers[:min(limit, len(timers))]
}

// due returns due timers of one slot and the time until the next one, which is negative if there is none.
func (s *Store) due(ctx context.Context, slot, offset, limit int) ([]Timer, time.Duration, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	found, next, err := s.scripts.DueTimers(ctx, s.scripts.Shard(slot), offset, limit)
	if err != nil {
		return nil, 0, fmt.Errorf("slot %d: %w", slot, err)
	}
	timers := make([]Timer, len(found))
	for i, timer := range found {
		timers[i] = Timer(timer)
	}
	return timers, next, nil
}
