package console

import (
	"cmp"
	"time"

	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/outbox"
)

type eventsPage struct {
	State       outbox.State
	About, When string
	States      []stateLink
	Acts        []actLink
	Filter      outbox.Filter
	Filtered    bool
	Rows        []stateRow
	First, Next string
}

// stateLink is a link to the events in a state.
type stateLink struct {
	State   outbox.State
	Link    string
	Current bool
}

// actLink is a link to an operation on the listed events.
type actLink struct {
	Act        outbox.Act
	Name, Path string
	AllLink    string
	Bad        bool
}

// stateRow is an event in the list of a state.
type stateRow struct {
	parkedRow

	Behind, BehindLink string
}

// actNames are the displayed names of the operations.
var actNames = map[outbox.Act]string{
	outbox.ActRetry: "Retry", outbox.ActReschedule: "Reschedule", outbox.ActCancel: "Cancel", outbox.ActPark: "Park", outbox.ActDiscard: "Discard",
}

// actsOn returns the operations that a list offers for events in a state. Parked events have a page of their own.
func actsOn(state outbox.State) []outbox.Act {
	switch state {
	case outbox.Pending, outbox.Retrying:
		return []outbox.Act{outbox.ActRetry, outbox.ActReschedule, outbox.ActPark, outbox.ActDiscard}
	case outbox.Scheduled:
		return []outbox.Act{outbox.ActRetry, outbox.ActReschedule, outbox.ActCancel, outbox.ActPark}
	case outbox.Waiting:
		return []outbox.Act{outbox.ActPark, outbox.ActDiscard}
	default:
		return nil
	}
}

// actLinks returns the operations that the reader may run on events in a state.
func actLinks(c *guard.Call, state outbox.State, f outbox.Filter, event string) []actLink {
	var all []actLink
	for _, act := range actsOn(state) {
		if c.Who.May < desk.NeedsOf(act) {
			continue
		}
		path := "preview-events-" + string(act)
		link := filterLink(c.Base(), path, f, "state", string(state))
		if event != "" {
			link = pageLink(c.Base(), path, "state", string(state), "event", event)
		}
		all = append(all, actLink{act, actNames[act], path, link, desk.NeedsOf(act) == guard.MayPurge})
	}
	return all
}

// events lists the events of a state.
func (u *ui) events(c *guard.Call) error {
	ctx, query, base := c.R.Context(), c.Query, c.Base()
	state, err := desk.StateOf(query.Get("state"))
	if err != nil {
		return err
	}
	filter, err := u.desk.EventFilter(query)
	if err != nil {
		return err
	}
	now, err := u.desk.Time(ctx)
	if err != nil {
		return err
	}
	found, err := u.desk.Events(ctx, c.Op, state, filter, query.Get("cursor"), parkedRows)
	if err != nil {
		return err
	}
	about := states[cmp.Or(map[outbox.State]outbox.State{outbox.Scheduled: outbox.Pending, outbox.Retrying: outbox.Pending}[state], state)]
	page := eventsPage{
		State: state, About: about.about, When: cmp.Or(about.at, "Time"), Filter: filter, Filtered: filter.String() != "all",
		Acts: actLinks(c, state, filter, ""),
	}
	for _, other := range outbox.States() {
		page.States = append(page.States, stateLink{other, filterLink(base, "events", filter, "state", string(other)), other == state})
	}
	for _, e := range found.Events {
		row := stateRow{parkedRow: u.row(base, e, now), Behind: e.Behind}
		if row.Age = distance(now, e.At); e.Behind != "" {
			row.BehindLink = eventLink(base, outbox.Event{Slot: e.Slot, ID: e.Behind})
		}
		page.Rows = append(page.Rows, row)
	}
	if query.Get("cursor") != "" {
		page.First = filterLink(base, "events", filter, "state", string(state))
	}
	if found.Next != "" {
		page.Next = filterLink(base, "events", filter, "state", string(state), "cursor", found.Next)
	}
	return u.show(c, "events", "Events: "+string(state), page)
}

// distance formats how far a time is in the past or in the future.
func distance(now, at time.Time) string {
	switch {
	case at.IsZero():
		return "–"
	case at.After(now):
		return "in " + span(at.Sub(now))
	}
	return span(now.Sub(at)) + " ago"
}

// eventRoutes returns the routes of the list of events by state and of the operations on them.
func (u *ui) eventRoutes() []guard.Route {
	all := []guard.Route{{Pattern: "GET /events", Needs: guard.MayView, Do: u.events, Scans: true}}
	for _, act := range outbox.Acts() {
		needs, path := desk.NeedsOf(act), "events-"+string(act)
		preview := func(c *guard.Call) error { return u.previewChange(c, act, "") }
		all = append(all,
			guard.Route{Pattern: "GET /preview-" + path, Needs: needs, Do: preview, Scans: true},
			guard.Route{Pattern: "POST /preview-" + path, Needs: needs, Do: preview, Scans: true},
			guard.Route{Pattern: "POST /" + path, Needs: needs, Do: func(c *guard.Call) error { return u.change(c, act) }, Scans: true},
		)
	}
	return all
}
