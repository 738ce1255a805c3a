package link

import (
	"time"

	"github.com/luatx/luatx/internal/shard"
)

// Position is where a list of events begins: behind an event, or at its beginning if it is zero. An outbox.Filter and an
// outbox.Event embed it under an unexported name.
type Position struct{ last *last }

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
