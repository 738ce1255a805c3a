package link

import (
	"fmt"
	"time"

	"github.com/luatx/luatx/internal/shard"
)

// Position is where a list of events begins: behind an event, or at its beginning if it is zero. An outbox.Filter and an
// outbox.Event embed it under an unexported name.
type Position struct {
	last   *last
	budget *int // how many more events the list may read; nil: any number
}

type last struct {
	slot  int
	at    time.Time
	id    string
	place shard.Place
}

func (p *Position) position() *Position { return p }

type positioned interface{ position() *Position }

// Continue makes the list of an *outbox.Filter begin behind an event, which may be gone by then.
func Continue(filter positioned, slot int, at time.Time, id string) {
	filter.position().last = &last{slot: slot, at: at, id: id}
}

// Last returns the event behind which the list of an *outbox.Filter begins. It returns false if the list begins with its
// first event.
func Last(filter positioned) (slot int, at time.Time, id string, ok bool) {
	l := filter.position().last
	if l == nil {
		return 0, time.Time{}, "", false
	}
	return l.slot, l.at, l.id, true
}

// ContinueAt makes the list of a *outbox.Filter by state begin behind a place of a slot. It also notes the place of a
// *outbox.Event.
func ContinueAt(filter positioned, slot int, place shard.Place) {
	filter.position().last = &last{slot: slot, place: place}
}

// PlaceOf returns the place of a *outbox.Event in a list by state, or the one behind which the list of a *outbox.Filter begins. It
// returns false if there is none.
func PlaceOf(filter positioned) (slot int, place shard.Place, ok bool) {
	l := filter.position().last
	if l == nil {
		return 0, shard.Place{}, false
	}
	return l.slot, l.place, true
}

// PauseError ends a list that has read as many events as Bound allows.
type PauseError struct {
	// Slot and Place are where the list continues.
	Slot  int
	Place shard.Place
}

// Error implements error.
func (p *PauseError) Error() string {
	return fmt.Sprintf("the list has read as many events as it may, until slot %d", p.Slot)
}

// Bound makes the list of an *outbox.Filter end with a *PauseError when it has read about n events without bodies, or a quarter of that
// with bodies.
func Bound(filter positioned, n int) { filter.position().budget = &n }

// Enough reports whether the list of an *outbox.Filter has read as many events as it may.
func Enough(filter positioned) bool {
	left := filter.position().budget
	return left != nil && *left <= 0
}

// callCost is the cost of a script beside that of its events.
const callCost = 20

// Spend notes that a script has read n events for the list of an *outbox.Filter.
func Spend(filter positioned, n int, bodies bool) {
	left := filter.position().budget
	if left == nil {
		return
	}
	if bodies {
		n *= 4
	}
	*left -= n + callCost
}
