package shard

import (
	"context"
	"slices"
	"time"
)

// Blocked summarizes the events that wait behind a parked event of their ordering key. admin.Blocked explains its
// fields.
type Blocked struct {
	Keys, Events int64
	Since        time.Time
	More         bool
}

const (
	// slotsAtOnce is the number of shards that one pipeline reads.
	slotsAtOnce = 256
	// blockedPage is the number of parked events that one script reads, and blockedEvents the number that one sum
	// reads. A script that finds fewer events than a page counts as partPage.
	blockedPage, partPage, blockedEvents = 1000, 100, 20_000
)

// Blocked summarizes the blocked ordering keys of shards. It reads one page of each shard in turn, so that no shard
// hides the others.
func (s *Scripts) Blocked(ctx context.Context, slots []int) (sum Blocked, err error) {
	var edges []Edge
	for chunk := range slices.Chunk(slots, slotsAtOnce) {
		found, err := s.FirstBlocking(ctx, chunk)
		if err != nil {
			return sum, err
		}
		edges = append(edges, found...)
	}
	slices.SortFunc(edges, func(a, b Edge) int { return a.At.Compare(b.At) })
	places := map[int]Place{}
	for looked := 0; len(edges) > 0; {
		open := edges[:0]
		for _, edge := range edges {
			if looked >= blockedEvents {
				sum.More = true
				return sum, nil
			}
			next, more, err := s.blockedIn(ctx, edge.Slot, places[edge.Slot], &sum)
			if err != nil {
				return sum, err
			}
			looked += partPage
			if places[edge.Slot] = next; more {
				looked += blockedPage - partPage
				open = append(open, edge)
			}
		}
		edges = open
	}
	return sum, nil
}

// blockedIn adds one page of a shard to a sum. It returns the place at which the next page begins.
func (s *Scripts) blockedIn(ctx context.Context, n int, after Place, sum *Blocked) (next Place, more bool, err error) {
	page, err := s.List(ctx, s.Shard(n), Listing{Of: "blocking", Only: "k", Limit: blockedPage, After: after})
	if err != nil {
		return next, false, &SlotError{n, err}
	}
	for _, row := range page.Rows {
		sum.Keys++
		sum.Events += int64(row.Behind)
		if sum.Since.IsZero() || row.At.Before(sum.Since) {
			sum.Since = row.At
		}
	}
	return page.Next, page.More, nil
}
