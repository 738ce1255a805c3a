package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/outbox"
)

// FilterNames are the query parameters of the filter of a list. A form may also name events by slot and id, as FilterOf reads them.
var FilterNames = []string{"aggregate", "destination", "type", "key", "class", "text", "older_than", "id", "slot"}

// FilterOf reads the filter of an address or a form.
func FilterOf(query url.Values) (f outbox.Filter, err error) {
	f.IDs = query["id"]
	for _, text := range query["event"] {
		name, err := outbox.ParseEventName(text)
		if err != nil {
			return f, guard.BadRequest("event is %.80q; use the form slot:id", text)
		}
		f.Events = append(f.Events, name)
	}
	for _, field := range acts.FilterFields(&f) {
		*field.Value = query.Get(field.Name)
	}
	if text := query.Get("older_than"); text != "" {
		if f.OlderThan, err = time.ParseDuration(text); err != nil || f.OlderThan < 0 {
			return f, guard.BadRequest("older_than %.80q is not a duration; use a duration such as 90s or 1h30m", text)
		}
	}
	for _, text := range query["slot"] {
		n, err := strconv.Atoi(text)
		if err != nil {
			return f, guard.BadRequest("slot %.80q is not a number", text)
		}
		f.Slots = append(f.Slots, n)
	}
	return f, nil
}

// EventFilter reads the filter of an address. It returns an error if no shard can match the filter.
func (d *Desk) EventFilter(query url.Values) (outbox.Filter, error) {
	f, err := FilterOf(query)
	if err != nil {
		return f, err
	}
	return f, d.Check(f)
}

// StateOf reads the state of an address or a form; pending if it names none.
func StateOf(text string) (outbox.State, error) {
	state := cmp.Or(outbox.State(text), outbox.Pending)
	if !slices.Contains(outbox.States(), state) {
		return "", guard.BadRequest("state %.40q does not exist; use one of %v", text, outbox.States())
	}
	return state, nil
}

// FilterValues returns the parameters of a filter, which FilterOf reads.
func FilterValues(f outbox.Filter) url.Values {
	query := url.Values{}
	for _, field := range acts.FilterFields(&f) {
		if *field.Value != "" {
			query.Set(field.Name, *field.Value)
		}
	}
	if f.OlderThan > 0 {
		query.Set("older_than", f.OlderThan.String())
	}
	for _, id := range f.IDs {
		query.Add("id", id)
	}
	for _, name := range f.Events {
		query.Add("event", name.String())
	}
	for _, n := range f.Slots {
		query.Add("slot", strconv.Itoa(n))
	}
	return query
}

// MaxFilterIDs is the number of events that a filter may name.
const MaxFilterIDs = 1000

// Check returns an error for a filter that no shard can match.
func (d *Desk) Check(f outbox.Filter) error {
	if n := len(f.IDs) + len(f.Events); n > MaxFilterIDs {
		return &guard.Problem{Status: http.StatusUnprocessableEntity, Detail: fmt.Sprintf("the filter has %d ids; use at most %d", n, MaxFilterIDs)}
	}
	slots := slices.Clone(f.Slots)
	for _, name := range f.Events {
		slots = append(slots, name.Slot)
	}
	return d.Ours(slots...)
}

// Ours returns a problem for slots that hold no shard of the keyspace.
func (d *Desk) Ours(slots ...int) error {
	for _, n := range slots {
		if !d.slots[n] {
			return &guard.Problem{Status: http.StatusUnprocessableEntity, Detail: fmt.Sprintf("slot %d has no shard of the keyspace", n)}
		}
	}
	return nil
}

// Unambiguous returns a problem if events of a state have an id of the filter in several slots, and the filter names no slots.
func (d *Desk) Unambiguous(ctx context.Context, op *admin.Operator, state outbox.State, f outbox.Filter) error {
	if len(f.IDs) == 0 || len(f.Slots) > 0 {
		return nil
	}
	_, err := acts.Choose(ctx, op.Outbox(), state, f)
	if several, ok := errors.AsType[*acts.AmbiguousError](err); ok {
		return &guard.Problem{Status: http.StatusConflict, Detail: several.Error()}
	}
	return err
}
