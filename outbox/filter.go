package outbox

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
)

// Filter selects events that match all of its set fields. The zero value selects all events.
type Filter struct {
	// Slots and Aggregate select shards.
	Slots     []int
	Aggregate string
	// IDs select events in each of these shards. Events selects events of several shards, each in its own.
	IDs    []string
	Events []EventName
	// Destination and Type are those of the event's body. Key is the ordering key, which an event has while it is in a lane.
	Destination, Type, Key string
	// Class is the class of the last failure. Text is a part of its text.
	Class, Text string
	// OlderThan is the minimum time since the event was parked, or sent if sent events are selected, or due if pending ones are. It
	// selects no waiting events, because they have no time.
	OlderThan time.Duration

	position // where Parked begins, for the pages of package admin
}

type position = link.Position

// String returns the set fields, as the audit shows them.
func (f Filter) String() string {
	var set []string
	add := func(name, value string) {
		if value != "" {
			set = append(set, fmt.Sprintf("%s=%q", name, value))
		}
	}
	if len(f.Slots) > 0 {
		set = append(set, fmt.Sprintf("slots=%v", f.Slots[:min(len(f.Slots), 16)]))
	}
	add("aggregate", f.Aggregate)
	if len(f.IDs) > 0 {
		set = append(set, fmt.Sprintf("%d ids", len(f.IDs)))
	}
	if len(f.Events) > 0 {
		set = append(set, fmt.Sprintf("%d events by slot and id", len(f.Events)))
	}
	add("destination", f.Destination)
	add("type", f.Type)
	add("key", f.Key)
	add("class", f.Class)
	add("text", f.Text)
	if f.OlderThan > 0 {
		set = append(set, "older than "+f.OlderThan.String())
	}
	if len(set) == 0 {
		return "all"
	}
	return strings.Join(set, " ")
}

// Matches reports whether the filter selects an event at a time of the server's clock. It ignores Aggregate.
func (f Filter) Matches(e Event, now time.Time) bool {
	switch {
	case len(f.Slots) > 0 && !slices.Contains(f.Slots, e.Slot),
		len(f.IDs) > 0 && !slices.Contains(f.IDs, e.ID),
		len(f.Events) > 0 && !slices.Contains(f.Events, e.Name()),
		!f.meant(e, now):
		return false
	}
	return true
}

// meant is Matches without the fields that a listing already applies.
func (f Filter) meant(e Event, now time.Time) bool {
	switch {
	case f.Key != "" && e.Key != f.Key,
		f.Class != "" && e.Class != f.Class,
		f.Text != "" && !strings.Contains(e.Error, f.Text),
		f.OlderThan > 0 && (e.At.IsZero() || now.Sub(e.At) < f.OlderThan):
		return false
	case f.Type == "" && f.Destination == "":
		return true
	case e.Message == nil:
		return false
	}
	return (f.Type == "" || e.Message.Type() == f.Type) && (f.Destination == "" || e.Message.Destination() == f.Destination)
}

func (f Filter) needsBodies() bool { return f.Type != "" || f.Destination != "" }

// slots returns the slots of the selected shards. None means all.
func (s *Store) slots(f Filter) ([]int, error) {
	for _, n := range f.Slots {
		if err := checkSlot(n); err != nil {
			return nil, err
		}
	}
	slots := f.Slots
	if f.Aggregate != "" {
		n, err := s.Slot(f.Aggregate)
		if err != nil {
			return nil, err
		}
		if len(slots) > 0 && !slices.Contains(slots, n) {
			return nil, fmt.Errorf("outbox: Filter.Slots does not contain slot %d of the aggregate %q; set Slots or Aggregate", n, f.Aggregate)
		}
		slots = []int{n}
	}
	if len(f.Events) == 0 {
		return slots, nil
	}
	named := map[int]bool{}
	for _, name := range f.Events {
		if err := checkSlot(name.Slot); err != nil {
			return nil, err
		}
		if len(slots) > 0 && !slices.Contains(slots, name.Slot) {
			return nil, fmt.Errorf("outbox: Filter.Events has the event %q, but Slots or Aggregate select other slots; set one of them", name)
		}
		named[name.Slot] = true
	}
	return slices.Sorted(maps.Keys(named)), nil
}

// Parked lists the parked events that the filter selects, shard by shard, the oldest of each first. It is not a snapshot: an
// event that is parked or re-armed meanwhile may or may not be listed. If a body cannot be decoded, Parked yields the event with
// an error and continues. A *StorageError ends the list.
func (s *Store) Parked(ctx context.Context, f Filter) iter.Seq2[Event, error] {
	first, at, id, goesOn := link.Last(&f.position)
	return func(yield func(Event, error) bool) {
		edges, err := s.edges("list parked events", f, func(slots []int) ([]shard.Edge, error) { return s.scripts.LastParked(ctx, slots) })
		if err != nil {
			yield(Event{}, err)
			return
		}
		slices.SortFunc(edges, func(a, b shard.Edge) int { return a.Slot - b.Slot })
		of := shard.Listing{Of: "parked", Only: "k", Bodies: true}
		for _, edge := range edges {
			of.After = shard.Place{}
			if goesOn {
				if edge.Slot < first {
					continue
				}
				if edge.Slot == first {
					of.After = shard.Place{Score: strconv.FormatInt(at.UnixMilli(), 10), Member: id}
				}
			}
			if !s.matchShard(ctx, edge.Slot, f, of, yield) {
				return
			}
		}
	}
}

// edges finds the shards that a filter selects and that are not empty.
func (s *Store) edges(op string, f Filter, find func([]int) ([]shard.Edge, error)) ([]shard.Edge, error) {
	slots, err := s.slots(f)
	if err != nil {
		return nil, err
	}
	var edges []shard.Edge
	err = s.chunks(slots, func(slots []int) error {
		found, err := find(slots)
		edges = append(edges, found...)
		return storageError(op, -1, err)
	})
	return edges, err
}

// matching lists the events that a filter selects, in each shard until its edge unless that is zero.
func (s *Store) matching(ctx context.Context, f Filter, of shard.Listing, edges []shard.Edge) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for _, edge := range edges {
			of := of
			of.Until = edge.At
			if !s.matchShard(ctx, edge.Slot, f, of, yield) {
				return
			}
		}
	}
}

// matchShard lists the selected events of one shard. It returns false if the reader has stopped, the filter's bound is reached, or the
// server returned an error.
func (s *Store) matchShard(ctx context.Context, n int, f Filter, of shard.Listing, yield func(Event, error) bool) bool {
	if f.isNamed() {
		return s.matchIDs(ctx, n, f, of, f.ids(n), yield)
	}
	thin := of.Bodies && !f.needsBodies() && f.isNarrow() // bodies are read only of the events that match
	of.Class = f.Class
	if of.Bodies = of.Bodies && !thin; of.Limit == 0 {
		of.Limit = listPage
		if !of.Bodies {
			of.Limit = thinPage
		}
	}
	for {
		if link.Enough(&f) {
			yield(Event{}, &link.PauseError{Slot: n, Place: of.After})
			return false
		}
		page, err := s.list(ctx, n, of)
		if err != nil {
			yield(Event{}, err)
			return false
		}
		link.Spend(&f, page.Read, of.Bodies)
		var ids []string
		for _, row := range page.Rows {
			e, err := event(n, row)
			switch {
			case !f.meant(e, page.Now):
			case thin:
				ids = append(ids, e.ID)
			case !yield(e, err):
				return false
			}
		}
		if len(ids) > 0 && !s.matchIDs(ctx, n, f, shard.Listing{Only: of.Only, Bodies: true, Until: of.Until}, ids, yield) {
			return false
		}
		if !page.More {
			return true
		}
		of.After = page.Next
	}
}

// matchIDs is matchShard for events by their ids.
func (s *Store) matchIDs(ctx context.Context, n int, f Filter, of shard.Listing, ids []string, yield func(Event, error) bool) bool {
	of.Of, of.Limit = "ids", listPage
	for chunk := range slices.Chunk(ids, listPage) {
		of.IDs = chunk
		page, err := s.list(ctx, n, of)
		if err != nil {
			yield(Event{}, err)
			return false
		}
		for _, row := range page.Rows {
			e, err := event(n, row)
			late := !of.Until.IsZero() && e.At.After(of.Until)
			if !late && f.meant(e, page.Now) && !yield(e, err) {
				return false
			}
		}
	}
	return true
}

// isNarrow reports whether the filter has fields that few events may match.
func (f Filter) isNarrow() bool { return f.Key != "" || f.Class != "" || f.Text != "" }
