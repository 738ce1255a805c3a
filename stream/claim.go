package stream

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// pendingPage is how many pending entries are looked at in one command.
const pendingPage = 100

// claim takes over entries that nobody has acked for MaxIdleTime, as far as there are places for them.
func (r *reader) claim(ctx context.Context) error {
	known := r.ledger.known()
	for from := "-"; ctx.Err() == nil; {
		// Which of them are idle is found out here: Redis 6.0 cannot be asked.
		page, err := r.client.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: r.cfg.Stream, Group: r.cfg.Group, Start: from, End: "+", Count: pendingPage,
		}).Result()
		if err != nil {
			return err
		}
		var idle []string
		for _, p := range page {
			if p.Idle >= r.cfg.MaxIdleTime && !known[p.ID] {
				idle = append(idle, p.ID)
			}
		}
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
		if len(page) < pendingPage {
			return nil
		}
		from = behind(page[len(page)-1].ID)
	}
	return nil
}

// takeOver claims entries and gives them out, on a place taken for each.
func (r *reader) takeOver(ctx context.Context, ids []string) error {
	places := len(ids)
	defer func() { r.ledger.release(places) }()
	claimed, err := r.claimIDs(ctx, ids)
	if err != nil {
		return err
	}
	r.counts.claimed.Add(int64(len(claimed)))
	for i, f := range r.fetch(ctx, claimed) {
		if f.err != nil {
			return f.err
		}
		if f.ours && r.give(claimed[i], f.values) {
			places--
		}
	}
	return r.findTrimmed(ctx, slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(claimed, id) }))
}

// findTrimmed notes which of the entries that could not be claimed are gone from the stream: since Redis 7.0 the claim
// itself removes those from the group. The others were acked or claimed meanwhile.
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
