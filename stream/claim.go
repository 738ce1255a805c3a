package stream

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// claim takes over entries that no consumer has acked for MaxIdleTime, as many as there are places.
func (r *reader) claim(ctx context.Context) error {
	known := r.ledger.known()
	for page, err := range r.member.Pending(ctx, "") {
		if err != nil {
			return err
		}
		// Redis 6.0 cannot filter by idle time.
		idle := slices.DeleteFunc(page, func(p redis.XPendingExt) bool { return p.Idle < r.cfg.MaxIdleTime || known[p.ID] })
		for len(idle) > 0 {
			places, _ := r.ledger.tryReserve(len(idle), false)
			if places == 0 {
				return nil
			}
			if err := r.takeOver(ctx, idle[:places]); err != nil {
				return err
			}
			idle = idle[places:]
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	return nil
}

// takeOver claims entries and delivers them. The caller has reserved a place for each.
func (r *reader) takeOver(ctx context.Context, idle []redis.XPendingExt) error {
	places := len(idle)
	defer func() { r.ledger.release(places) }()
	ids := make([]string, len(idle))
	for i, p := range idle {
		ids[i] = p.ID
	}
	claimed, err := r.member.Claim(ctx, r.cfg.MaxIdleTime, ids)
	if err != nil {
		return err
	}
	r.counts.claimed.Add(int64(len(claimed)))
	isClaimed := func(id string) bool { return slices.Contains(claimed, id) }
	left, err := r.takeIn(ctx, slices.DeleteFunc(slices.Clone(idle), func(p redis.XPendingExt) bool { return !isClaimed(p.ID) }))
	places -= len(claimed) - left
	if err != nil {
		return err
	}
	return r.findTrimmed(ctx, slices.DeleteFunc(ids, isClaimed))
}

// takeIn delivers entries that are pending for this consumer. The caller has reserved a place for each. Entries that have
// used up their deliveries go to the dead-letter stream. It returns the number of unused places.
func (r *reader) takeIn(ctx context.Context, own []redis.XPendingExt) (left int, err error) {
	left = len(own)
	ids := make([]string, 0, len(own))
	kept := make(map[string]redis.XPendingExt, len(own))
	for _, p := range own {
		if !r.usedUp(p.RetryCount) {
			ids = append(ids, p.ID)
			kept[p.ID] = p
			continue
		}
		if e, fresh := r.ledger.hold(p.ID); fresh {
			left--
			since(e, p)
			r.deadLetter(e, fmt.Sprintf("delivered %d times and never settled: its consumer died, hung or lost it", p.RetryCount))
		}
	}
	found, err := r.member.Fetch(ctx, ids...)
	for i, f := range found {
		if f.Deliveries == 0 {
			continue
		}
		if e, fresh := r.ledger.hold(ids[i]); fresh {
			left--
			since(e, kept[ids[i]])
			r.hand(e, f)
		}
	}
	return left, err
}

// since copies the deliveries and times that the group has recorded for an entry.
func since(e *entry, p redis.XPendingExt) {
	e.deliveries, e.from = p.RetryCount, p.Consumer
	e.first = e.first.Add(-p.Idle)
	e.read = e.first
}

// findTrimmed counts those entries that could not be claimed because the stream has lost them. Since Redis 7.0 the claim
// itself removes such entries from the group. The other entries were acked or claimed meanwhile.
func (r *reader) findTrimmed(ctx context.Context, ids []string) error {
	for _, id := range ids {
		found, err := r.client.XRangeN(ctx, r.cfg.Stream, id, id, 1).Result()
		if err != nil {
			return err
		}
		if len(found) == 0 {
			r.noteTrimmed(id)
		}
	}
	return nil
}
