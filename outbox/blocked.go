package outbox

import (
	"container/heap"
	"context"
	"iter"
	"strconv"
	"time"

	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
)

// Blocked lists the parked events that hold back others of their ordering key, over all shards, the one that was parked
// first first. Event.HoldsBack is the number of events that wait behind it, and Event.At when it was parked. The filter
// applies to the parked events. If several events of an ordering key are parked, only the first is listed. The list is no
// snapshot. An event whose body cannot be decoded comes with the error, and the list continues; a *StorageError ends it.
func (s *Store) Blocked(ctx context.Context, f Filter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		edges, err := s.edges("list blocked keys", f, func(slots []int) ([]shard.Edge, error) { return s.scripts.FirstBlocking(ctx, slots) })
		if err != nil {
			yield(Event{}, err)
			return
		}
		open := make(sources[*blockade], len(edges))
		for i, edge := range edges {
			open[i] = newBlockade(edge, f)
		}
		heap.Init(&open)
		for len(open) > 0 {
			b := open[0]
			switch {
			case len(b.page) > 0:
				next := b.page[0]
				b.page = b.page[1:]
				if !yield(next.event, next.err) {
					return
				}
				b.at, b.next = next.event.At, shard.Place{Score: strconv.FormatInt(next.event.At.UnixMilli(), 10), Member: next.event.ID}
			case b.done:
				heap.Pop(&open)
				continue
			default:
				if b.read && link.Enough(&f) { // without a page of each shard, no event is known to be the first
					yield(Event{}, &link.PauseError{Slot: b.slot, Place: b.next})
					return
				}
				if err := b.fill(ctx, s, f); err != nil {
					yield(Event{}, err)
					return
				}
			}
			heap.Fix(&open, 0)
		}
	}
}

// blockade lists the parked events that hold back others in one shard, page by page.
type blockade struct {
	slot int
	at   time.Time   // the time of the next event, or earlier
	next shard.Place // as at, for a list that continues; the last page may have reached further
	page []decoded
	of   shard.Listing
	read bool // a page was read
	done bool
}

// decoded is an event, with the error of its body.
type decoded struct {
	event Event
	err   error
}

// newBlockade starts at the first parked event of a shard, or where the filter continues.
func newBlockade(edge shard.Edge, f Filter) *blockade {
	b := &blockade{slot: edge.Slot, at: edge.At, of: shard.Listing{Of: "blocking", Only: "k", Bodies: true, Limit: thinPage, Class: f.Class}}
	first, at, id, goesOn := link.Last(&f.position)
	switch {
	case !goesOn:
	case b.slot < first:
		b.of.After = shard.Place{Score: strconv.FormatInt(at.UnixMilli(), 10), Member: behindAll}
	case b.slot == first:
		b.of.After = shard.Place{Score: strconv.FormatInt(at.UnixMilli(), 10), Member: id}
	default:
		b.of.After = shard.Place{Score: strconv.FormatInt(at.UnixMilli()-1, 10), Member: behindAll}
	}
	if b.next = b.of.After; b.at.Before(at) {
		b.at = at
	}
	return b
}

func (b *blockade) head() (time.Time, int) {
	if len(b.page) > 0 {
		return b.page[0].event.At, b.slot
	}
	return b.at, b.slot
}

// fill reads the next page.
func (b *blockade) fill(ctx context.Context, s *Store, f Filter) error {
	page, err := s.list(ctx, b.slot, b.of)
	if err != nil {
		return err
	}
	b.read = true
	link.Spend(&f, page.Read, false)
	for _, row := range page.Rows {
		e, err := event(b.slot, row)
		if f.Matches(e, page.Now) {
			b.page = append(b.page, decoded{e, err})
		}
	}
	if b.of.After, b.done = page.Next, !page.More; page.More && len(b.page) == 0 {
		b.at, b.next = placeTime(page.Next), page.Next
	}
	return nil
}

// placeTime returns the time of a place in a listing by time.
func placeTime(p shard.Place) time.Time {
	ms, _ := strconv.ParseFloat(p.Score, 64) // the score of a sorted set, which is always a number
	return time.UnixMilli(int64(ms))
}
