package console_test

import (
	"html"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stream"
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

func TestConsoleChangesThePreviewedEventsAndNoneThatComeLater(t *testing.T) {
	t.Parallel()
	emit := func(t testing.TB, tr *luatx.Transactor, aggregate, id string) string {
		t.Helper()
		admintest.Emit(t, tr, aggregate, id)
		return slotText(t, tr, aggregate) + ":" + id
	}
	for _, c := range []struct {
		name, to, query string
		state           outbox.State
		add             func(t testing.TB, tr *luatx.Transactor, aggregate, id string) string
	}{
		{"re-arm", "rearm", "class=http_422", outbox.Parked, parkIn},
		{"discard", "discard", "class=http_422", outbox.Parked, parkIn},
		{"discard events that are parked", "events-discard", "state=parked&class=http_422", outbox.Parked, parkIn},
		{"discard pending events", "events-discard", "state=pending&destination=bank", outbox.Pending, emit},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
				tr, op := admintest.Service(t, client, 4)
				low, high := aggregateOf(t, tr, 0), aggregateOf(t, tr, 3)
				for i := range 5 {
					c.add(t, tr, high, "early"+strconv.Itoa(i))
				}
				s := newSite(t, op, nil)
				_, page := s.get(t, "preview-"+c.to+"?"+c.query)
				form := formWith(page, c.to)
				var late []string
				for i := range 5 {
					late = append(late, c.add(t, tr, low, "late"+strconv.Itoa(i)))
				}
				run(t, s, c.to, form)
				if got := inState(t, op, c.state); !slices.Equal(got, late) {
					t.Errorf("%s events: %q, want %q", c.state, got, late)
				}
			})
		})
	}
}

func TestConsoleConfirmsOnlyFormsThatSayWhatWasShown(t *testing.T) {
	t.Parallel()
	tr, op := admintest.Service(t, redistest.Shared(t).Client(t), 1)
	parkIn(t, tr, "a", "1")
	s := newSite(t, op, nil)
	for to, query := range map[string]string{"discard": "class=http_422", "events-discard": "state=parked"} {
		_, page := s.get(t, "preview-"+to+"?"+query)
		for _, field := range []string{"shown_at", "shown"} {
			form := formWith(page, to)
			if !form.Has(field) {
				continue
			}
			form.Del(field)
			if _, page, location := s.post(t, to, form); location != "" || !strings.Contains(page, "Nothing has changed yet") {
				t.Errorf("%s without the field %s: location %q, want a new preview", to, field, location)
			}
		}
	}
	if got := inState(t, op, outbox.Parked); len(got) != 1 {
		t.Errorf("parked events: %q, want 1", got)
	}
}

func TestConsoleChangesAtMostAThousandEventsThatItNames(t *testing.T) {
	t.Parallel()
	tr, op := admintest.Service(t, redistest.Shared(t).Client(t), 1)
	events := make([]luatx.Event, 1002)
	for i := range events {
		id := strconv.Itoa(i)
		events[i] = luatx.Event{ID: id, Body: []byte(`{"specversion":"1.0","id":"` + id + `","type":"sold","source":"/shop","destination":"bank"}`)}
	}
	_, err := tr.Enqueue(redistest.Soon(t), "a", events...)
	redistest.Must(t, err)
	s := newSite(t, op, nil)
	_, page := s.get(t, "preview-events-park?state=pending&destination=bank")
	for _, want := range []string{"Park 1,000 pending events for bank", "2 more events match"} {
		if !strings.Contains(page, want) {
			t.Errorf("preview does not contain %q", want)
		}
	}
	run(t, s, "events-park", formWith(page, "events-park"))
	if parked, pending := len(inState(t, op, outbox.Parked)), len(inState(t, op, outbox.Pending)); parked != 1000 || pending != 2 {
		t.Errorf("%d events are parked and %d pending, want 1000 and 2", parked, pending)
	}
}

func TestLinesOfAPreviewOfDeadLettersHaveTheCanaryAndItsWait(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	_, op := admintest.Service(t, client, 1)
	key := "{" + redistest.Tag(t) + "}:orders"
	admintest.DeadLetters(t, client, key, "billing", "no such bank", 2)
	_, page := newSite(t, op, nil).get(t, "preview-retry-dead?canary=1&canary_wait=5m&stream="+url.QueryEscape(key))
	for _, want := range []string{"luatx dead retry --all --canary 1 --canary-wait 5m0s --reason", `"canary":1,"canary_wait_seconds":300`} {
		if !strings.Contains(html.UnescapeString(page), want) {
			t.Errorf("preview does not contain %s:\n%s", want, page)
		}
	}
}

func TestConsolePutsBackThePreviewedDeadLettersAndNoneThatComeLater(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"retry-dead", "discard-dead"} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
				tr, op := admintest.Service(t, client, 4)
				keys := stream.PartitionKeys(tr.Keyspace(), "orders")
				redistest.Must(t, client.XAdd(redistest.Soon(t), &redis.XAddArgs{Stream: keys[0], Values: []string{"f", "v"}}).Err())
				admintest.DeadLetters(t, client, keys[3], "billing", "no such bank", 5)
				s := newSite(t, op, nil)
				_, page := s.get(t, "preview-"+to+"?stream=orders&since=1h")
				form := formWith(page, to)
				admintest.DeadLetters(t, client, keys[0], "billing", "no such bank", 5)
				run(t, s, to, form)
				left := deadLetters(t, op, "orders")
				if len(left) != 5 || left[0].Stream != keys[0] {
					t.Errorf("dead letters: %+v, want the 5 of %s", left, keys[0])
				}
			})
		})
	}
}
