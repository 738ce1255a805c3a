package console

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/internal/pretty"
	"github.com/luatx/luatx/outbox"
)

type eventPage struct {
	ID, Level, State, About, AtName, Age string
	Destination, Key, Lease              string
	At                                   time.Time
	Attempts, Slot                       int
	CanRearm, CanDiscard                 bool
	Behind, BehindLink                   string
	Acts                                 []actLink
	HoldsBack                            int
	RearmLink, DiscardLink               string
	History                              []outbox.Failure
	Attributes                           []nameValue
	Erased, NoBody, Shown                bool
	Data, DataNote, ShowLink, HideLink   string
	CLI, Curl                            string
	Holder                               *admin.Process // the relay that holds the lease; nil if it is unknown
}

// foundPage lists the events of an id.
type foundPage struct {
	ID     string
	Events []foundEvent
}

type foundEvent struct {
	Slot, State, Destination, Link string
}

// event shows one event. Without a slot it searches all shards for the id.
func (u *ui) event(c *guard.Call) error {
	id := c.Query.Get("id")
	if id == "" {
		return &guard.Problem{Status: http.StatusBadRequest, Title: "Missing event id", Detail: "Enter the id of an event."}
	}
	if !c.Query.Has("slot") {
		return u.find(c, id)
	}
	slot, err := strconv.Atoi(c.Query.Get("slot"))
	if err != nil {
		return &guard.Problem{Status: http.StatusBadRequest, Title: "Invalid slot", Detail: "slot must be a number from 0 to 16383."}
	}
	if err := u.desk.Ours(slot); err != nil {
		return err
	}
	shown := c.Query.Get("body") == "1"
	if shown {
		if err := c.Disclose(); err != nil {
			return err
		}
	}
	e, err := c.Op.Outbox().Show(c.R.Context(), slot, id)
	if err != nil && e.ID == "" {
		return err
	}
	if shown {
		if err := c.Op.RecordRead(c.R.Context(), "by id", e); err != nil {
			return err
		}
	}
	now, late := u.desk.Samples.Now(c.R.Context())
	if late != nil {
		return late
	}
	page := u.newEventPage(c, e, err, now.Stats.At)
	holder, known, err := c.Op.Holder(c.R.Context(), e)
	if err != nil {
		return err
	}
	if known {
		page.Holder = &holder
	}
	return u.show(c, "event", "Event "+id, page)
}

// find shows the event with an id, or a list if several have it.
func (u *ui) find(c *guard.Call, id string) error {
	page := foundPage{ID: id}
	for e, err := range c.Op.Find(c.R.Context(), id) {
		if err != nil && e.ID == "" {
			return err
		}
		page.Events = append(page.Events, foundEvent{strconv.Itoa(e.Slot), string(e.State), e.Destination, eventLink(c.Base(), e)})
	}
	if len(page.Events) == 1 {
		c.Redirect(pageLink("", "event", "slot", page.Events[0].Slot, "id", id))
		return nil
	}
	return u.show(c, "found", "Find an event", page)
}

// states describes the states of an event.
var states = map[outbox.State]struct{ level, about, at string }{
	outbox.Pending: {"", "Due now, or becomes due at its time", "Next attempt"},
	outbox.Leased:  {"", "Leased: a relay is publishing it", "Lease ends"},
	outbox.Waiting: {"", "Waits behind an earlier event with the same ordering key", ""},
	outbox.Sent:    {"good", "Published", "Sent"},
	outbox.Parked:  {"bad", "Parked: it stays until an operator acts", "Parked"},
}

func (u *ui) newEventPage(c *guard.Call, e outbox.Event, broken error, now time.Time) eventPage {
	state, base, name := states[e.State], c.Base(), e.Name().String()
	p := eventPage{
		ID: e.ID, State: string(acts.StateOf(e)), Level: state.level, About: state.about, At: e.At, AtName: state.at, Slot: e.Slot, Attempts: e.Attempts,
		Destination: e.Destination, Key: e.Key, HoldsBack: e.HoldsBack, Lease: e.Lease, History: e.History, Erased: e.Erased, NoBody: len(e.Body) == 0 && !e.Erased,
		RearmLink: pageLink(base, "preview-rearm", "event", name), DiscardLink: pageLink(base, "preview-discard", "event", name),
		ShowLink: pageLink(base, "event", "slot", strconv.Itoa(e.Slot), "id", e.ID, "body", "1"), HideLink: eventLink(base, e),
	}
	if e.Behind != "" {
		p.Behind, p.BehindLink = e.Behind, eventLink(base, outbox.Event{Slot: e.Slot, ID: e.Behind})
	}
	p.Acts = actLinks(c, acts.StateOf(e), outbox.Filter{}, name)
	p.CanRearm = e.State == outbox.Parked && !e.Erased && c.Who.May >= guard.MayRetry
	p.CanDiscard = e.State == outbox.Parked && c.Who.May >= guard.MayPurge
	p.Age = span(now.Sub(e.At)) + " ago"
	if e.At.After(now) {
		p.Age = "in " + span(e.At.Sub(now))
	}
	shown := u.desk.Payload(e)
	for _, name := range slices.Sorted(maps.Keys(shown.Attributes)) {
		p.Attributes = append(p.Attributes, nameValue{name, shown.Attributes[name]})
	}
	if c.Query.Get("body") == "1" {
		p.Shown = true
		p.Data, p.DataNote = readable(shown.Data)
		if broken != nil && !errors.Is(broken, outbox.ErrNotFound) {
			p.DataNote = "The body cannot be decoded: " + broken.Error()
		}
	}
	if p.CanRearm {
		act := plan{act: "rearm", filter: outbox.Filter{Events: []outbox.EventName{e.Name()}}}
		p.CLI, p.Curl = act.commandLine(), act.curl(c)
	}
	return p
}

// maxShown is the maximum number of bytes of a body on a page.
const maxShown = 256 << 10

// readable returns data for a page. It indents JSON that is small and shallow, returns other text unchanged, and returns
// bytes in hexadecimal.
func readable(data []byte) (text, note string) {
	if len(data) == 0 {
		return "", "The body is empty."
	}
	if len(data) > maxShown {
		note = fmt.Sprintf("Showing the first %s of %s.", size(maxShown), size(int64(len(data))))
		end := maxShown
		for end > maxShown-utf8.UTFMax && !utf8.RuneStart(data[end]) {
			end--
		}
		data = data[:end]
	}
	if note == "" {
		if indented, ok := pretty.JSON(data); ok {
			return indented, ""
		}
	}
	if utf8.Valid(data) {
		return string(data), note
	}
	return fmt.Sprintf("%x", data[:min(len(data), 4096)]), "The body is not text. It is shown in hexadecimal, up to the first 4,096 bytes."
}
