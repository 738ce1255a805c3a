package console_test

import (
	"html"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
)

// aggregateOf returns an aggregate of the slot at a place in the order of the slots.
func aggregateOf(t testing.TB, tr *luatx.Transactor, place int) string {
	t.Helper()
	want := slices.Sorted(slices.Values(tr.Keyspace().Slots()))[place]
	for i := 0; ; i++ {
		aggregate := "aggregate-" + strconv.Itoa(i)
		if slotText(t, tr, aggregate) == strconv.Itoa(want) {
			return aggregate
		}
	}
}

// parkIn parks an event of an aggregate, and returns its name.
func parkIn(t testing.TB, tr *luatx.Transactor, aggregate, id string) string {
	t.Helper()
	body := []byte(`{"specversion":"1.0","id":"` + id + `","type":"sold","source":"/shop","destination":"bank"}`)
	slot := admintest.ParkEvent(t, tr, aggregate, luatx.Event{ID: id, Body: body}, "http_422", "no such account")
	return outbox.EventName{Slot: slot, ID: id}.String()
}

// inState returns the sorted names of the events in a state.
func inState(t testing.TB, op *admin.Operator, state outbox.State) []string {
	t.Helper()
	var names []string
	for e, err := range op.Outbox().List(redistest.Soon(t), state, outbox.ListOptions{}) {
		redistest.Must(t, err)
		names = append(names, e.Name().String())
	}
	slices.Sort(names)
	return names
}

// run confirms a preview and waits for the end of its operation.
func run(t testing.TB, s *site, to string, form url.Values) {
	t.Helper()
	form.Set("sure", "yes")
	form.Set("reason", "a test")
	form.Set("canary", "0")
	status, page, location := s.post(t, to, form)
	if strings.Contains(page, "Nothing has changed yet") { // another sentence, because no relay runs for the canary
		status, page, location = s.post(t, to, formWith(page, to))
	}
	if status != http.StatusSeeOther {
		t.Fatalf("%s: status %d, want %d:\n%s", to, status, http.StatusSeeOther, page)
	}
	redistest.Eventually(t, "the operation to end", func() bool { _, page := s.get(t, location); return strings.Contains(page, "<strong>done") })
}

// formWith returns the form of a preview with everything that a confirmation needs.
func formWith(page, to string) url.Values {
	form := formOf(page, `action="./`+to+`"`)
	form.Set("sure", "yes")
	form.Set("reason", "a test")
	return form
}

func TestConsoleChangesSelectedEventsOnlyInTheirOwnSlots(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{"rearm": "parked rearm", "discard": "parked discard", "events-discard": "events discard"} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			tr, op := admintest.Service(t, redistest.Shared(t).Client(t), 4)
			low, high := aggregateOf(t, tr, 0), aggregateOf(t, tr, 3)
			selected := []string{parkIn(t, tr, low, "x"), parkIn(t, tr, high, "y")}
			left := []string{parkIn(t, tr, low, "y"), parkIn(t, tr, high, "x")}
			slices.Sort(left)
			s := newSite(t, op, nil)
			_, page, _ := s.post(t, "preview-"+to, url.Values{"event": selected, "state": {"parked"}})
			form := formWith(page, to)
			line := "luatx " + want
			if to == "events-discard" {
				line += " --state parked --reason …"
			}
			line += " --event " + selected[0] + " --event " + selected[1]
			if form.Get("count") != "2" || !strings.Contains(html.UnescapeString(page), line) {
				t.Errorf("preview counts %q events, and does not show %q:\n%s", form.Get("count"), line, page)
			}
			run(t, s, to, form)
			if got := inState(t, op, outbox.Parked); !slices.Equal(got, left) {
				t.Errorf("parked events: %q, want %q", got, left)
			}
		})
	}
}
