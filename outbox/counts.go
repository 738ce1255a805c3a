package outbox

import (
	"context"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/shard"
)

// Counts holds the numbers of events, and what the shards have counted since they began. Pending, Waiting, Parked and Sent
// add up to all events. Nothing is left to publish if Pending and Waiting are 0.
type Counts struct {
	// Pending is the number of events that relays publish now or at their time. It includes the leased ones, unlike the
	// State of that name.
	Pending int64
	// Leased is the number of pending events with a lease, of a relay that publishes them or that died while it did.
	Leased int64
	// Waiting is the number of events that wait behind others of their lane.
	Waiting int64
	// Parked is the number of events that need an operator.
	Parked int64
	// Sent is the number of published events that are remembered; see relay.Config.SentRetention.
	Sent int64
	// Bytes is the size of the bodies of pending and waiting events, and 1 for each of them whose id was given.
	Bytes int64

	Totals Totals
}

// Totals only grow.
type Totals struct {
	// Enqueued came into the outbox; of Duplicate it knew the id and the body already.
	Enqueued, Duplicate int64
	// Sent were published; Failed are attempts that did not succeed; Parked is how often an event was parked.
	Sent, Failed, Parked int64
	// Orphans are members of an index that had no body and were removed.
	Orphans int64
	// Discarded, Imported, Replayed and Erased (of bodies that were not sent) are what operators did.
	Discarded, Imported, Replayed, Erased int64
}

// Counts adds up the events of all shards. The shards are asked one after the other, so that an event on its way from
// one state to another may be counted in both, or in neither.
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
	c.Waiting += max(0, shard.Entries-shard.Pending-shard.Parked-shard.Sent)
	c.Bytes += shard.Totals["bytes"]
	t := &c.Totals
	for name, total := range map[string]*int64{
		"enqueued": &t.Enqueued, "duplicate": &t.Duplicate, "sent": &t.Sent, "failed": &t.Failed, "parkings": &t.Parked,
		"orphans": &t.Orphans, "discarded": &t.Discarded, "imported": &t.Imported, "replayed": &t.Replayed, "erased": &t.Erased,
	} {
		*total += shard.Totals[name]
	}
}

// Overview is how many events are parked, by what they are.
type Overview struct {
	Total int64
	// ByDestination, ByType and ByClass count by the destination and the type in the event's body, and by the class of
	// its last failure. What has none is counted under the empty text.
	ByDestination, ByType, ByClass map[string]int64
}

// Overview tells how many events are parked and why. It reads sums that are kept, and no events.
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
		v.Total += n // every parked event has one class
	}
}

// Oldest tells for how long the event has been due that is due the longest; 0 where none is. An event that a relay
// works on is not due, and one that failed is due when its pause is over: a time that grows says that nobody publishes.
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
	return max(0, page.now.Sub(oldest.At)), nil
}
