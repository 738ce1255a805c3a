package link

import (
	"time"
)

// Position is where a list of events begins: behind an event, or at the first event if it is zero. An outbox.Filter embeds it
// under an unexported name.
type Position struct{ last *last }

type last struct {
	slot int
	at   time.Time
	id   string
}

func (p *Position) position() *Position { return p }

// Continue makes the list of an *outbox.Filter begin behind an event, which need not exist any more.
func Continue(filter interface{ position() *Position }, slot int, at time.Time, id string) {
	filter.position().last = &last{slot, at, id}
}

// Last returns the event behind which the list of an *outbox.Filter begins. It returns false if the list begins with its first
// event.
func Last(filter interface{ position() *Position }) (slot int, at time.Time, id string, ok bool) {
	l := filter.position().last
	if l == nil {
		return 0, time.Time{}, "", false
	}
	return l.slot, l.at, l.id, true
}
