package outbox

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// EventName names an event. Events of two slots may have the same id.
type EventName struct {
	Slot int    `json:"slot"`
	ID   string `json:"id"`
}

// String returns the name in the form slot:id, which ParseEventName reads.
func (n EventName) String() string { return strconv.Itoa(n.Slot) + ":" + n.ID }

// ParseEventName reads a name of the form slot:id. It returns an error for another form, but does not check the slot.
func ParseEventName(text string) (EventName, error) {
	number, id, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(number)
	if err != nil || id == "" {
		return EventName{}, fmt.Errorf("outbox: %.80q is not the name of an event; use the form slot:id", text)
	}
	return EventName{n, id}, nil
}

// Name returns the name of the event.
func (e Event) Name() EventName { return EventName{e.Slot, e.ID} }

// isNamed reports whether the filter selects events by their ids.
func (f Filter) isNamed() bool { return len(f.IDs)+len(f.Events) > 0 }

// ids returns the ids that a named filter selects in a slot, each once.
func (f Filter) ids(slot int) []string {
	var ids []string
	seen := map[string]bool{}
	add := func(id string) {
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	if len(f.Events) == 0 {
		for _, id := range f.IDs {
			add(id)
		}
	}
	for _, name := range f.Events {
		if name.Slot == slot && (len(f.IDs) == 0 || slices.Contains(f.IDs, name.ID)) {
			add(name.ID)
		}
	}
	return ids
}
