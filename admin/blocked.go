package admin

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/outbox"
)

// Blocked sums up the events that wait behind a parked event of their ordering key.
type Blocked struct {
	// Keys is the number of ordering keys whose events wait, and Events the number of these events. A key counts once for each
	// shard that has such events.
	Keys   int64 `json:"keys"`
	Events int64 `json:"events"`
	// Since is when the first of these keys was blocked. It is zero if none is.
	Since time.Time `json:"since,omitzero"`
	// More reports that there may be others: the sums are of the parked events that were looked at, at most 20,000.
	More bool `json:"more,omitempty"`
}

// Blocked lists the parked events that hold back others of their ordering key, the one that was parked first first. See
// outbox.Store.Blocked, which takes a filter.
func (o *Operator) Blocked(ctx context.Context) iter.Seq2[outbox.Event, error] {
	return o.core.Store.Blocked(ctx, outbox.Filter{})
}

const (
	// blockedPage is how many parked events one script of a sum looks at, blockedPages how many scripts a sum runs.
	blockedPage  = 100
	blockedPages = 200
)

// blocked sums up the blocked ordering keys. It reads a page of each shard in turn, so that no shard hides the others.
func (o *Operator) blocked(ctx context.Context) (sum Blocked, err error) {
	var edges []shard.Edge
	for chunk := range slices.Chunk(o.transactor.Keyspace().Slots(), slotsAtOnce) {
		found, err := o.scripts.FirstBlocking(ctx, chunk)
		if err != nil {
			return sum, fmt.Errorf("admin: blocked keys: %w", err)
		}
		edges = append(edges, found...)
	}
	slices.SortFunc(edges, func(a, b shard.Edge) int { return a.At.Compare(b.At) })
	places := map[int]shard.Place{}
	for pages := 0; len(edges) > 0; {
		open := edges[:0]
		for _, edge := range edges {
			if pages++; pages > blockedPages {
				sum.More = true
				return sum, nil
			}
			next, more, err := o.blockedIn(ctx, edge.Slot, places[edge.Slot], &sum)
			if err != nil {
				return sum, err
			}
			if places[edge.Slot] = next; more {
				open = append(open, edge)
			}
		}
		edges = open
	}
	return sum, nil
}

// blockedIn adds a page of a shard to a sum, and returns where the next one begins.
func (o *Operator) blockedIn(ctx context.Context, n int, after shard.Place, sum *Blocked) (next shard.Place, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.transactor.Config().CommitTimeout)
	defer cancel()
	rows, _, next, more, err := o.scripts.List(ctx, o.scripts.Shard(n), shard.Listing{Of: "blocking", Only: "k", Limit: blockedPage, After: after})
	if err != nil {
		return next, false, &outbox.StorageError{Op: "blocked keys", Slot: n, Err: err}
	}
	for _, row := range rows {
		sum.Keys++
		sum.Events += int64(row.Behind)
		if sum.Since.IsZero() || row.At.Before(sum.Since) {
			sum.Since = row.At
		}
	}
	return next, more, nil
}
