package acts

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/luatx/luatx/outbox"
)

// Choice holds the events of a state that the ids and the names of a filter select.
type Choice struct {
	Events []outbox.Event
	// Missing lists the ids and the names that match no event.
	Missing []string
}

// AmbiguousError reports that an id is in several slots and that the filter selects none of them.
type AmbiguousError struct {
	ID    string
	State outbox.State
	Slots []int
}

// Error names the id and the slots.
func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("the id %q is %s in the slots %s: choose slots", e.ID, e.State, strings.Trim(strings.ReplaceAll(fmt.Sprint(e.Slots), " ", ", "), "[]"))
}

// Choose looks up the events of a state that the ids and the names of a filter select. With an *AmbiguousError, it also returns the
// whole choice.
func Choose(ctx context.Context, store *outbox.Store, state outbox.State, f outbox.Filter) (Choice, error) {
	var c Choice
	slots := map[string][]int{}
	for e, err := range store.List(ctx, state, outbox.ListOptions{Filter: f}) {
		if err != nil && e.ID == "" {
			return c, err
		}
		c.Events, slots[e.ID] = append(c.Events, e), append(slots[e.ID], e.Slot)
	}
	var ambiguous error
	for _, id := range slices.Compact(slices.Sorted(slices.Values(f.IDs))) {
		switch n := len(slots[id]); {
		case n == 0:
			c.Missing = append(c.Missing, id)
		case n > 1 && len(f.Slots) == 0 && ambiguous == nil:
			ambiguous = &AmbiguousError{id, state, slots[id]}
		}
	}
	for _, name := range f.Events {
		if !slices.Contains(slots[name.ID], name.Slot) {
			c.Missing = append(c.Missing, name.String())
		}
	}
	return c, ambiguous
}
