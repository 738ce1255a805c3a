package outbox

import (
	"context"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/shard"
)

// Counts holds the numbers of events and the totals of the shards. Pending, Waiting, Parked and Sent add up to all events. If
// Pending and Waiting are 0, nothing is left to publish.
type Counts struct {
	// Pending is the number of events that relays publish now or at their time. Unlike the State of that name, it includes the
	// leased ones.
	Pending int64
	// Leased is the number of pending events that are leased to a relay, which publishes them or has died.
	Leased int64
	// Waiting is the number of events that wait behind others in their lane.
	Waiting int64
	// Parked is the number of events that need an operator.
	Parked int64
	// Sent is the number of published events that are remembered; see relay.Config.SentRetention.
	Sent int64
	// Bytes is the size of the bodies of pending and waiting events, plus 1 for each of them whose id was given.
	Bytes int64

	Totals Totals
}

// Totals are counted since a shard was created and never decrease.
type Totals struct {
	// Enqueued counts added events. Duplicate counts events whose id and body the outbox already had.
	Enqueued, Duplicate int64
	// Sent counts published events, Failed failed attempts, and Parked how often an event was parked.
	Sent, Failed, Parked int64
	// Orphans counts members of an index that had no body and were removed.
	Orphans int64
	// Discarded, Imported, Replayed and Erased (bodies that were not sent) count the operations on events.
	Discarded, Imported, Replayed, Erased int64
}

// Counts returns the sums of all shards. It asks the shards one after the other, so an event that changes its state meanwhile may
// be counted twice or not at all.
func (s *Store) Counts(ctx context.Context) (Counts, error) {
	var sum Counts
	err := s.chunks(nil, func(slots []int) error {
		found, err := s.scripts.Counts(ctx, slots)
		for _, c := range found {
			sum.add(c)
		}
		return storageError("counts", -1, err)
	})
	return sum, err
}

func (c *Counts) add(shard shard.Counts) {
	c.Pending += shard.Pending
	c.Leased += shard.Leased
	c.Parked += shard.Parked
	c.Sent += shard.Sent
	c.Waiting += max(0, shard.Events()-shard.Pending)
	c.Bytes += shard.Totals["bytes"]
	t := &c.Totals
	for name, total := range map[string]*int64{
		"enqueued": &t.Enqueued, "duplicate": &t.Duplicate, "sent": &t.Sent, "failed": &t.Failed, "parkings": &t.Parked,
		"orphans": &t.Orphans, "discarded": &t.Discarded, "imported": &t.Imported, "replayed": &t.Replayed, "erased": &t.Erased,
	} {
		*total += shard.Totals[name]
	}
}

// Overview holds the number of parked events by their properties.
type Overview struct {
	Total int64
	// ByDestination and ByType count by the destination and the type in the event's body, ByClass by the class of the last
	// failure. The empty text counts events without the property.
	ByDestination, ByType, ByClass map[string]int64
}

// Overview returns how many events are parked and why. It reads stored sums and no events.
func (s *Store) Overview(ctx context.Context) (Overview, error) {
	view := Overview{ByDestination: map[string]int64{}, ByType: map[string]int64{}, ByClass: map[string]int64{}}
	err := s.chunks(nil, func(slots []int) error {
		sums, err := s.scripts.ParkedBy(ctx, slots)
		for name, n := range sums {
			view.add(name, n)
		}
		return storageError("overview", -1, err)
	})
	return view, err
}

func (v *Overview) add(name string, n int64) {
	kind, text, _ := strings.Cut(name, ":")
	switch kind {
	case "d":
		v.ByDestination[text] += n
	case "t":
		v.ByType[text] += n
	case "c":
		v.ByClass[text] += n
		v.Total += n // every parked event has exactly one class
	}
}

// Oldest returns the age of the longest-overdue event, or 0 if none is due. A leased event is not due. A failed event is due when
// its pause is over. If the age grows, no relay publishes.
func (s *Store) Oldest(ctx context.Context) (time.Duration, error) {
	var oldest shard.Edge
	err := s.chunks(nil, func(slots []int) error {
		firsts, err := s.scripts.Firsts(ctx, slots)
		for _, first := range firsts {
			if oldest.At.IsZero() || first.At.Before(oldest.At) {
				oldest = first
			}
		}
		return storageError("oldest", -1, err)
	})
	if err != nil || oldest.At.IsZero() {
		return 0, err
	}
	page, err := s.list(ctx, oldest.Slot, shard.Listing{Of: "due", Limit: 1})
	if err != nil {
		return 0, err
	}
	return max(0, page.Now.Sub(oldest.At)), nil
}
