package console_test

import (
	"html"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
)

// confirm submits the form of a preview with more fields. It returns the status, the page and the location of a redirect.
func confirm(t *testing.T, s *site, to, page string, added url.Values) (status int, next, location string) {
	t.Helper()
	sent := url.Values{}
	for _, found := range hiddens.FindAllStringSubmatch(page, -1) {
		sent.Add(found[1], html.UnescapeString(found[2]))
	}
	maps.Copy(sent, added)
	return s.post(t, to, sent)
}

func TestEventsOfEveryStateAreListedAndChangedAfterAPreview(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, op := admintest.Service(t, client, 1)
		s := newSite(t, op, nil)
		slot := admintest.Block(t, tr, "a", "k", "head", "behind")
		body := []byte(`{"specversion":"1.0","id":"later","type":"sold","source":"/shop","destination":"bank"}`)
		_, err := tr.Enqueue(redistest.Soon(t), "a", luatx.Event{ID: "later", Body: body, At: time.Now().Add(time.Hour)})
		redistest.Must(t, err)
		admintest.Emit(t, tr, "a", "due")
		shows := func(page string, wants ...string) {
			t.Helper()
			for _, want := range wants {
				if !strings.Contains(page, want) {
					t.Errorf("page does not contain %q:\n%s", want, page)
				}
			}
		}
		_, page := s.get(t, "events")
		shows(page, ">due</a>", ">later</a>", "Retry selected…", "Discard all that match…")
		_, page = s.get(t, "events?state=waiting")
		shows(page, ">behind</a>", "behind <a", ">head</a>", "Park selected…")
		_, page = s.get(t, "events?state=scheduled&destination=none")
		shows(page, "No scheduled event matches")
		if status, _ := s.get(t, "events?state=lost"); status != http.StatusBadRequest {
			t.Errorf("unknown state: status %d, want %d", status, http.StatusBadRequest)
		}
		at := strconv.Itoa(slot)
		_, page = s.get(t, "event?slot="+at+"&id=later")
		shows(page, "Reschedule this event…", "Cancel this event…", ">scheduled<")

		_, page = s.get(t, "preview-events-reschedule?state=scheduled&event="+at+":later")
		shows(page, "Reschedule 1 scheduled event")
		status, page, location := confirm(t, s, "events-reschedule", page, url.Values{"reason": {"they moved"}, "at": {"2100-01-01T00:00:00Z"}})
		if shows(page, "Nothing has changed yet", "to 2100-01-01T00:00:00Z"); status != http.StatusOK || location != "" {
			t.Errorf("changed time without a new preview: status %d, location %q", status, location)
		}
		_, page, location = confirm(t, s, "events-reschedule", page, url.Values{"reason": {"they moved"}, "at": {"2100-01-01T00:00:00Z"}})
		if !strings.Contains(location, "operations/") {
			t.Errorf("confirmed reschedule: location %q, want an operation:\n%s", location, page)
		}
		redistest.Eventually(t, "the event to move", func() bool {
			e, err := op.Outbox().Show(redistest.Soon(t), slot, "later")
			return err == nil && e.At.Equal(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
		})

		_, page = s.get(t, "preview-events-discard?state=pending&event="+at+":due")
		if _, _, location := confirm(t, s, "events-discard", page, url.Values{"reason": {"never"}}); location != "" {
			t.Error("discard without the checkbox starts an operation")
		}
		if _, _, location := confirm(t, s, "events-discard", page, url.Values{"sure": {"yes"}}); location != "" {
			t.Error("discard without a reason starts an operation")
		}
		if _, _, location := confirm(t, s, "events-discard", page, url.Values{"sure": {"yes"}, "reason": {"never"}}); location == "" {
			t.Error("confirmed discard starts no operation")
		}
		redistest.Eventually(t, "the event to be discarded", func() bool {
			c, err := op.Outbox().Counts(redistest.Soon(t))
			return err == nil && c.Pending == 1
		})
		for r, err := range op.Audit(redistest.Soon(t), time.Time{}) {
			redistest.Must(t, err)
			if r.Who != "bob" || r.Act != string(outbox.ActReschedule) && r.Act != string(outbox.ActDiscard) {
				t.Errorf("unexpected audit record %+v", r)
			}
		}
		s.access = httpapi.MayRetry
		if _, page = s.get(t, "events"); strings.Contains(page, "Discard") || !strings.Contains(page, "Park selected…") {
			t.Error("page offers a discard to a reader without the right to purge, or no park")
		}
	})
}
