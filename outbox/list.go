package outbox

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
)

// ErrNotFound is returned for an event that a shard does not have, or no longer has.
var ErrNotFound = errors.New("outbox: event not found")

// ListOptions configure List. The zero value lists all events.
type ListOptions struct {
	// Filter selects events. Its OlderThan refers to the time of the event.
	Filter Filter
	// Slots are the slots of the shards to list, unless the filter names some. Defaults to all.
	Slots []int
	// NoBodies omits the bodies, unless the filter needs them: the events have no Message, and a Destination only if an operator set one.
	NoBodies bool
	// Since omits events whose time is earlier, by the server's clock. It does not apply to waiting events, which have no time.
	// Defaults to none.
	Since time.Time
}

// listPage is how many members of an index one script reads. thinPage replaces it if few members have the requested state, or if
// bodies are omitted.
const (
	listPage = 100
	thinPage = 1000
)

// List lists the events of a state, shard by shard, by time or, for waiting events, by lane. It is not a snapshot: an event that
// changes its state meanwhile may be missed or listed twice. If a body cannot be decoded, List yields the event with an error and
// continues. A *StorageError ends the list.
func (s *Store) List(ctx context.Context, state State, opts ListOptions) iter.Seq2[Event, error] {
	f := opts.Filter
	if len(f.Slots) == 0 {
		f.Slots = opts.Slots
	}
	of := shard.Listing{Bodies: !opts.NoBodies || f.needsBodies()}
	byTime := state == Parked || state == Sent // alone; leased events are in an order of their own
	if !opts.Since.IsZero() && byTime {
		of.After = shard.Place{Score: strconv.FormatInt(opts.Since.UnixMilli()-1, 10), Member: behindAll}
	}
	find := s.scripts.Firsts
	switch state {
	case Pending, Scheduled, Retrying:
		of.Of, of.Only = "pending", "p"
	case Leased:
		of.Of, of.Only, of.Limit = "pending", "l", thinPage
	case Waiting:
		of.Of, of.Only, find = "waiting", "w", s.lanes
	case Sent:
		of.Of, of.Only, find = "sent", "s", s.scripts.LastSent
	case Parked:
		of.Of, of.Only, find = "parked", "k", s.scripts.LastParked
	default:
		return func(yield func(Event, error) bool) {
			yield(Event{}, fmt.Errorf("outbox: the state %q does not exist; use one of %v", state, States()))
		}
	}
	since := opts.Since
	if byTime { // their times are full milliseconds
		since = since.Truncate(time.Millisecond)
	}
	return func(yield func(Event, error) bool) {
		every := yield
		yield = func(e Event, err error) bool {
			early := state != Waiting && e.At.Before(since)
			return e.ID != "" && (early || !e.is(state)) || every(e, err)
		}
		if err := s.listFrom(ctx, state, f, of, find, yield); err != nil && !errors.Is(err, errEnough) {
			yield(Event{}, err)
		}
	}
}

// is reports whether an event that a list of a state has found is meant.
func (e Event) is(state State) bool {
	switch state {
	case Scheduled:
		return e.Scheduled
	case Retrying:
		return e.State == Pending && e.Attempts > 0
	default:
		return e.State == state
	}
}

// listFrom lists events of shards in the order of their slots, from where the filter continues.
func (s *Store) listFrom(
	ctx context.Context, state State, f Filter, of shard.Listing, find func(context.Context, []int) ([]shard.Edge, error), yield func(Event, error) bool,
) error {
	slots, err := s.slots(f)
	if err != nil {
		return err
	}
	if len(slots) == 0 {
		slots = s.keyspace.Slots()
	}
	first, place, goesOn := link.PlaceOf(&f.position)
	return s.chunks(slices.Sorted(slices.Values(slots)), func(slots []int) error {
		edges, err := find(ctx, slots)
		if err != nil {
			return storageError("list "+string(state)+" events", -1, err)
		}
		for _, edge := range edges {
			if goesOn && edge.Slot < first {
				continue
			}
			of := of
			if goesOn && edge.Slot == first {
				of.After = place
			}
			if !s.matchShard(ctx, edge.Slot, f, of, yield) {
				return errEnough
			}
		}
		return nil
	})
}

// errEnough ends a listing whose reader has stopped.
var errEnough = errors.New("enough")

// lanes finds the shards with ordered events, as edges does for other events.
func (s *Store) lanes(ctx context.Context, slots []int) ([]shard.Edge, error) {
	found, err := s.scripts.HasLanes(ctx, slots)
	edges := make([]shard.Edge, len(found))
	for i, n := range found {
		edges[i].Slot = n
	}
	return edges, err
}

func (s *Store) list(ctx context.Context, n int, of shard.Listing) (shard.Page, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	page, err := s.scripts.List(ctx, s.scripts.Shard(n), of)
	op := "list " + of.Of + " events"
	if of.Of == "ids" {
		op = "show"
	}
	return page, storageError(op, n, err)
}

// Show returns one event in any state. It returns ErrNotFound if the shard does not have it. Slot returns the slot of an
// aggregate. If the body cannot be decoded, Show returns the event and an error.
func (s *Store) Show(ctx context.Context, slotNumber int, id string) (Event, error) {
	if err := checkSlot(slotNumber); err != nil {
		return Event{}, err
	}
	page, err := s.list(ctx, slotNumber, shard.Listing{Of: "ids", Bodies: true, IDs: []string{id}})
	if err != nil {
		return Event{}, err
	}
	if len(page.Rows) == 0 {
		return Event{}, fmt.Errorf("%w: %q in slot %d", ErrNotFound, id, slotNumber)
	}
	return event(slotNumber, page.Rows[0])
}

// maxPending is the maximum number of events that FindPending returns.
const maxPending = 10_000

// FindPending returns up to limit due events of all shards, the longest-overdue first. Limit is 1 to 10,000. It claims nothing,
// so a relay may publish the events at any time. If a body cannot be decoded, Message is nil.
func (s *Store) FindPending(ctx context.Context, limit int) ([]Event, error) {
	if limit < 1 || limit > maxPending {
		return nil, fmt.Errorf("outbox: find pending: the limit is %d; use 1 to %d", limit, maxPending)
	}
	var shards []shard.Edge
	err := s.chunks(nil, func(slots []int) error {
		firsts, err := s.scripts.Firsts(ctx, slots)
		shards = append(shards, firsts...)
		return storageError("find pending events", -1, err)
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(shards, func(a, b shard.Edge) int { return a.At.Compare(b.At) })
	var found []Event
	for _, shard := range shards {
		if len(found) == limit && !shard.At.Before(found[limit-1].At) {
			break // this shard and the following ones have only younger due events
		}
		if found, err = s.due(ctx, shard.Slot, limit, found); err != nil {
			return nil, err
		}
		slices.SortStableFunc(found, func(a, b Event) int { return a.At.Compare(b.At) })
		found = found[:min(limit, len(found))]
	}
	return found, nil
}

// due appends up to limit due events of a shard.
func (s *Store) due(ctx context.Context, n, limit int, found []Event) ([]Event, error) {
	for _, what := range []string{"expired", "due"} {
		var err error
		if found, err = s.first(ctx, n, shard.Listing{Of: what, Bodies: true}, limit, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// first appends the first events of a listing, up to limit.
func (s *Store) first(ctx context.Context, n int, of shard.Listing, limit int, found []Event) ([]Event, error) {
	for left := limit; left > 0; {
		of.Limit = min(left, listPage)
		page, err := s.list(ctx, n, of)
		if err != nil {
			return nil, err
		}
		for _, row := range page.Rows {
			e, _ := event(n, row) // an event with an invalid body is due, too
			found = append(found, e)
		}
		left -= len(page.Rows)
		if !page.More {
			break
		}
		of.After = page.Next
	}
	return found, nil
}
