package link

import (
	"fmt"
	"time"

	"github.com/luatx/luatx/internal/shard"
)

// Position is the event after which a list of events begins. A zero Position is the beginning of the list. An
// outbox.Filter and an outbox.Event embed it under an unexported name.
type Position struct {
	last   *last
	budget *int // the number of events that the list may still read; nil: no limit
}

type last struct {
	slot  int
	at    time.Time
	id    string
	place shard.Place
}

func (p *Position) position() *Position { return p }

type positioned interface{ position() *Position }

// Continue makes the list of an *outbox.Filter begin after an event, which may no longer exist.
func Continue(filter positioned, slot int, at time.Time, id string) {
	filter.position().last = &last{slot: slot, at: at, id: id}
}

// Last returns the event after which the list of an *outbox.Filter begins. It returns false if the list begins with its
// first event.
func Last(filter positioned) (slot int, at time.Time, id string, ok bool) {
	l := filter.position().last
	if l == nil {
		return 0, time.Time{}, "", false
	}
	return l.slot, l.at, l.id, true
}

// ContinueAt makes a list of an *outbox.Filter by state begin after a place in a slot. With an *outbox.Event, it stores
// the place of that event.
func ContinueAt(filter positioned, slot int, place shard.Place) {
	filter.position().last = &last{slot: slot, place: place}
}

// PlaceOf returns the place of an *outbox.Event in a list by state, or the place after which the list of an
// *outbox.Filter begins. It returns false if there is none.
func PlaceOf(filter positioned) (slot int, place shard.Place, ok bool) {
	l := filter.position().last
	if l == nil {
		return 0, shard.Place{}, false
	}
	return l.slot, l.place, true
}

// PauseError ends a list that has read as many events as Bound allows.
type PauseError struct {
	// The list continues at Place in Slot.
	Slot  int
	Place shard.Place
}

// Error implements error.
func (p *PauseError) Error() string {
	return fmt.Sprintf("the list has read as many events as it may, until slot %d", p.Slot)
}

// Bound makes the list of an *outbox.Filter end with a *PauseError when it has read about n events without bodies, or a
// quarter as many with bodies.
func Bound(filter positioned, n int) { filter.position().budget = &n }

// Enough reports whether the list of an *outbox.Filter has read the number of events that Bound allows.
func Enough(filter positioned) bool {
	left := filter.position().budget
	return left != nil && *left <= 0
}

// callCost is the cost of a script in addition to the cost of its events.
const callCost = 20

// Spend records that a script has read n events for the list of an *outbox.Filter.
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
