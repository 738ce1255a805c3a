package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// replied sends a request and decodes the reply.
func replied[T any](t testing.TB, h http.Handler, method, target, body string, want int) (reply T) {
	t.Helper()
	w := answer(h, asked(t, method, target, body))
	if w.Code != want {
		t.Fatalf("%s %s %s: status %d, want %d: %s", method, target, body, w.Code, want, w.Body)
	}
	redistest.Must(t, json.Unmarshal(w.Body.Bytes(), &reply))
	return reply
}

type pageTold struct {
	Events []struct {
		Slot int
		ID   string
	}
	Next string
}

// operationTold is an operation as the API returns it.
type operationTold struct {
	ID, Error        string
	Running, Stopped bool
	Matched, Done    int
	Skipped          map[string]int
	Rearm            struct {
		Rearmed int
		Stopped string
		Canary  struct{ Sent int }
	}
	Findings []struct{ Fixed bool }
}

// ended waits for the end of an operation.
func ended(t testing.TB, h http.Handler, id string) (o operationTold) {
	t.Helper()
	redistest.Eventually(t, "the operation to end", func() bool {
		o = replied[operationTold](t, h, http.MethodGet, "/api/operations/"+id, "", http.StatusOK)
		return !o.Running
	})
	return o
}

func TestPagesListEachEventOnceWhileOthersAreDiscarded(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, h := handler(t, client, httpapi.Config{})
		var want []string
		for i, aggregate := range []string{"a", "b", "c", "d", "e"} {
			var ids []string
			for j := range 10 {
				ids = append(ids, fmt.Sprintf("%d/%d %s", i, j, admintest.Hostile))
			}
			admintest.Park(t, tr, aggregate, "http_422", "sold", ids...)
			want = append(want, ids...)
		}
		op, err := admin.NewOperator(tr, admin.OperatorConfig{Client: client, Name: "alice"})
		redistest.Must(t, err)
		var got []string
		for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
			page := replied[pageTold](t, h, http.MethodGet, "/api/parked?class=http_422&limit=7&cursor="+url.QueryEscape(cursor), "", http.StatusOK)
			if cursor = page.Next; len(page.Events) != 7 && cursor != "" {
				t.Errorf("a page of %d", len(page.Events))
			}
			for _, e := range page.Events {
				got = append(got, e.ID)
			}
			last := page.Events[len(page.Events)-1]
			_, err := op.Outbox().Discard(redistest.Soon(t), last.Slot, "gone meanwhile", last.ID)
			redistest.Must(t, err)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("listed %d of %d: %q", len(got), len(want), got)
		}
	})
}

func TestPayloadsAreHiddenUntilAskedForThenRedactedAndNotExported(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		w := newWard(t, client, httpapi.Config{Redact: func(e outbox.Event, p httpapi.Payload) httpapi.Payload {
			delete(p.Attributes, "subject")
			p.Data = []byte(strings.ReplaceAll(string(p.Data), "4111", "****"))
			if e.Message.Subject() != admintest.Hostile || !strings.Contains(string(e.Body), "4111") {
				t.Error("Redact gets the original instead of a copy")
			}
			return p
		}})
		at := "/api/event?id=1&slot=" + strconv.Itoa(w.slot)
		for target, want := range map[string][3]bool{ // a subject, a card, its mask
			at: {}, at + "&payload=0": {}, at + "&payload=1": {false, false, true}, "/api/find?id=1": {}, "/api/find?id=1&payload=1": {false, false, true},
			"/api/parked": {},
		} {
			text := answer(w.handler, asked(t, http.MethodGet, target, "")).Body.String()
			if got := [3]bool{strings.Contains(text, "subject"), strings.Contains(text, "4111"), strings.Contains(text, "****")}; got != want {
				t.Errorf("%s: %v, want %v: %s", target, got, want, text)
			}
		}
		if reply := answer(w.handler, asked(t, http.MethodGet, "/api/parked/export", "")); reply.Code != http.StatusForbidden {
			t.Errorf("export with redacted payloads: %d", reply.Code)
		}
		_, open := handlerOf(t, w.tr, client, httpapi.Config{})
		if text := answer(open, asked(t, http.MethodGet, at, "")).Body.String(); !strings.Contains(text, "subject") || strings.Contains(text, "4111") {
			t.Errorf("payload without a Redact hook: %s", text)
		}
		if text := answer(open, asked(t, http.MethodGet, "/api/parked/export", "")).Body.String(); strings.Count(text, "\n") != 7 || !strings.Contains(text, "4111") {
			t.Errorf("exported %s", text)
		}
	})
}

// handlerOf is another handler of a service.
func handlerOf(t testing.TB, tr *luatx.Transactor, client redis.UniversalClient, cfg httpapi.Config) (*admin.Operator, *httpapi.Handler) {
	t.Helper()
	op, err := admin.NewOperator(tr, admin.OperatorConfig{Client: client, Name: "alice"})
	redistest.Must(t, err)
	return op, newHandler(t, op, cfg)
}

func TestActsByNameAndFilterAreDoneAndRecordedForTheirSender(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		w := newWard(t, client, httpapi.Config{Authorize: func(*http.Request) (httpapi.Identity, error) {
			return httpapi.Identity{Name: "bob", May: httpapi.MayPurge}, nil
		}})
		h, slot := w.handler, strconv.Itoa(w.slot)
		type answers struct{ Done int }
		if got := replied[answers](t, h, http.MethodPost, "/api/parked/rearm", `{"events":[{"slot":`+slot+`,"id":"1"},{"slot":`+slot+`,"id":"6"}]}`, 200); got.Done != 1 {
			t.Errorf("re-armed by name: %+v", got)
		}
		type dry struct {
			Matched int
			Classes map[string]int
		}
		if got := replied[dry](t, h, http.MethodPost, "/api/parked/rearm", `{"filter":{"class":"http_422"},"dry_run":true}`, 200); got.Matched != 4 || got.Classes["http_422"] != 4 {
			t.Errorf("a dry run: %+v", got)
		}
		if got := replied[dry](t, h, http.MethodPost, "/api/parked/rearm", `{"filter":{"events":[{"slot":`+slot+`,"id":"2"}]},"canary":1,"dry_run":true}`, 200); got.Matched != 1 {
			t.Errorf("a dry run of an event by slot and id: %+v", got)
		}
		o := replied[operationTold](t, h, http.MethodPost, "/api/parked/rearm", `{"filter":{"class":"http_422","ids":["2"]}}`, 202)
		if o = ended(t, h, o.ID); o.Done != 1 || o.Rearm.Rearmed != 1 || o.Error != "" || o.Stopped {
			t.Errorf("re-armed: %+v", o)
		}
		o = replied[operationTold](t, h, http.MethodPost, "/api/parked/discard", `{"filter":{"type":"sold"},"reason":"of no use","limit":2}`, 202)
		if o = ended(t, h, o.ID); o.Done != 2 || o.Matched != 2 || o.Error != "" {
			t.Errorf("discarded: %+v", o)
		}
		if got := replied[answers](t, h, http.MethodPost, "/api/events/erase", `{"events":[{"slot":`+slot+`,"id":"5"}],"reason":"asked for"}`, 200); got.Done != 1 {
			t.Errorf("erased: %+v", got)
		}
		o = replied[operationTold](t, h, http.MethodPost, "/api/fix", `{}`, 202)
		if o = ended(t, h, o.ID); o.Done == 0 || len(o.Findings) == 0 || !o.Findings[0].Fixed {
			t.Errorf("fixed: %+v", o)
		}
		replied[any](t, h, http.MethodPost, "/api/destinations/pause", `{"destination":"bank","reason":"down"}`, 200)
		if got := replied[struct{ Resumed bool }](t, h, http.MethodPost, "/api/destinations/resume", `{"destination":"bank"}`, 200); !got.Resumed {
			t.Error("nothing was paused")
		}
		records := replied[struct {
			Records []struct{ Who, Act, Why string }
		}](t, h, http.MethodGet, "/api/audit", "", 200).Records
		var acts []string
		for _, r := range records {
			if r.Who == "bob" {
				acts = append(acts, r.Act)
			}
		}
		slices.Sort(acts)
		if want := []string{"discard", "erase", "pause", "rearm", "rearm", "resume"}; !slices.Equal(acts, want) {
			t.Errorf("the audit has the acts %q: %+v", acts, records)
		}
	})
}

func TestDryRunOfDiscardCountsAndAnIDInSeveralSlotsNeedsSlots(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		w := newWard(t, client, httpapi.Config{})
		other := ""
		for i := 0; other == ""; i++ { // an aggregate of another slot
			aggregate := fmt.Sprint("aggregate-", i)
			if n, err := outbox.NewStore(w.tr).Slot(aggregate); err != nil || n != w.slot {
				redistest.Must(t, err)
				other = aggregate
			}
		}
		admintest.Park(t, w.tr, other, "http_422", "sold", "1")
		parked := func() (n int) {
			for _, err := range outbox.NewStore(w.tr).Parked(redistest.Soon(t), outbox.Filter{}) {
				redistest.Must(t, err)
				n++
			}
			return n
		}
		before := parked()
		type counted struct {
			Matched int
			Classes map[string]int
		}
		got := replied[counted](t, w.handler, http.MethodPost, "/api/parked/discard", `{"filter":{"class":"http_422"},"reason":"r","dry_run":true}`, 200)
		if got.Matched != 6 || got.Classes["http_422"] != 6 {
			t.Errorf("a dry run: %+v", got)
		}
		for _, act := range []string{"rearm", "discard"} {
			body := `"dry_run":false}`
			if act == "discard" {
				body = `"reason":"r"}`
			}
			refused := replied[struct{ Detail string }](t, w.handler, http.MethodPost, "/api/parked/"+act, `{"filter":{"ids":["1"]},`+body, 409)
			if !strings.Contains(refused.Detail, `the id "1" is parked in the slots`) {
				t.Errorf("%s: %+v", act, refused)
			}
		}
		if after := parked(); after != before {
			t.Errorf("%d events are parked, want %d", after, before)
		}
		o := replied[operationTold](t, w.handler, http.MethodPost, "/api/parked/discard", fmt.Sprintf(`{"filter":{"ids":["1"],"slots":[%d]},"reason":"r"}`, w.slot), 202)
		if o = ended(t, w.handler, o.ID); o.Done != 1 {
			t.Errorf("discarded: %+v", o)
		}
	})
}

func TestCanaryGoesFirstAndOthersFollow(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, h := handler(t, client, httpapi.Config{})
		var ids []string
		for i := range 60 {
			ids = append(ids, fmt.Sprint("e", i))
		}
		admintest.Park(t, tr, "a", "http_422", "sold", ids...)
		l := &admintest.Till{}
		admintest.Relay(t, tr, func(e *message.RawMessage) error { return l.Take(e, false) })
		o := replied[operationTold](t, h, http.MethodPost, "/api/parked/rearm", `{"all":true,"canary":10}`, 202)
		if o = ended(t, h, o.ID); o.Done != 60 || o.Rearm.Canary.Sent != 10 || o.Rearm.Stopped != "" {
			t.Errorf("operation = %+v", o)
		}
		redistest.Eventually(t, "all to be published", func() bool { return len(l.List()) == 60 })
	})
}

func TestOperationsAreBoundedAndEndByStopOrClose(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	client := redistest.Shared(t).Client(t)
	tr, h := handler(t, client, httpapi.Config{MaxOperations: 2, Logger: slog.New(slog.DiscardHandler)})
	admintest.Park(t, tr, "a", "http_422", "sold", "1", "2", "3")
	const waits = `{"all":true,"canary":1,"canary_wait_seconds":3600}` // nobody publishes
	var begun []operationTold
	for range 2 {
		begun = append(begun, replied[operationTold](t, h, http.MethodPost, "/api/parked/rearm", waits, 202))
	}
	replied[any](t, h, http.MethodPost, "/api/fix", `{}`, http.StatusConflict)
	replied[any](t, h, http.MethodPost, "/api/operations/"+begun[0].ID+"/stop", `{}`, 200)
	if o := ended(t, h, begun[0].ID); !o.Stopped || o.Error != "" {
		t.Errorf("stopped: %+v", o)
	}
	o := replied[operationTold](t, h, http.MethodPost, "/api/fix", `{}`, 202)
	ended(t, h, o.ID)
	h.Close()
	if o := ended(t, h, begun[1].ID); !o.Stopped {
		t.Errorf("closed: %+v", o)
	}
	replied[any](t, h, http.MethodPost, "/api/fix", `{}`, http.StatusServiceUnavailable)
}

func TestRunningOperationIsRememberedBeforeEndedOnes(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	client := redistest.Shared(t).Client(t)
	tr, h := handler(t, client, httpapi.Config{MaxOperations: 2})
	admintest.Park(t, tr, "a", "http_422", "sold", "1", "2")
	const waits = `{"all":true,"canary":1,"canary_wait_seconds":3600}` // nobody publishes
	begun := replied[operationTold](t, h, http.MethodPost, "/api/parked/rearm", waits, 202)
	var first, last operationTold
	for i := range 100 {
		last = replied[operationTold](t, h, http.MethodPost, "/api/parked/discard", `{"filter":{"class":"none"},"reason":"r"}`, 202)
		if ended(t, h, last.ID); i == 0 {
			first = last
		}
	}
	replied[any](t, h, http.MethodPost, "/api/operations/"+begun.ID+"/stop", `{}`, 200)
	if o := ended(t, h, begun.ID); !o.Stopped {
		t.Errorf("stopped: %+v", o)
	}
	replied[any](t, h, http.MethodGet, "/api/operations/"+first.ID, "", http.StatusNotFound)
	replied[any](t, h, http.MethodGet, "/api/operations/"+last.ID, "", http.StatusOK)
}

func TestRunMeasuresTheOutboxForTheHistoryUntilItEnds(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr, h := handler(t, client, httpapi.Config{})
	admintest.Emit(t, tr, "a", "1", "2")
	stop := admintest.Running(t, h.Run)
	redistest.Eventually(t, "a measurement", func() bool {
		got := replied[admin.History](t, h, http.MethodGet, "/api/history?step=15m", "", 200)
		return len(got.Intervals) > 0 && got.Total.Measured != nil && got.Total.Measured.Events == 2
	})
	stop()
	replied[any](t, h, http.MethodPost, "/api/fix", `{}`, http.StatusServiceUnavailable)
}

func TestStatsHaveRatesSinceAQueryOfTheLastMinute(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	_, h := handler(t, client, httpapi.Config{})
	type stats struct{ Rates *struct{ Enqueued float64 } }
	if got := replied[stats](t, h, http.MethodGet, "/api/stats", "", 200); got.Rates != nil {
		t.Errorf("the first query has rates: %+v", got.Rates)
	}
	redistest.Eventually(t, "rates", func() bool { return replied[stats](t, h, http.MethodGet, "/api/stats", "", 200).Rates != nil })
}

func TestServerThatDoesNotReplyMakesRequestsUnavailable(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	var logs rig.Lines
	_, h := handler(t, client, httpapi.Config{Logger: logs.Logger(), Timeout: 5 * time.Second})
	server.SetError("LOADING Redis is loading the dataset in memory")
	targets := []string{"/readyz", "/api/stats", "/api/parked", "/api/find?id=1", "/api/audit", "/api/drain", "/api/destinations"}
	for _, target := range targets {
		w := answer(h, asked(t, http.MethodGet, target, ""))
		if p := problem(t, w); w.Code != http.StatusServiceUnavailable && w.Code != http.StatusGatewayTimeout {
			t.Errorf("%s: %d %+v", target, w.Code, p)
		}
	}
	if w := answer(h, asked(t, http.MethodGet, "/livez", "")); w.Code != http.StatusOK {
		t.Errorf("livez: %d", w.Code)
	}
	server.SetError("")
	replied[any](t, h, http.MethodGet, "/api/none", "", http.StatusNotFound)
	if n := logs.Count("request failed"); n != len(targets) {
		t.Errorf("%d failures are logged, want %d:\n%s", n, len(targets), logs.String())
	}
	replied[any](t, h, http.MethodGet, "/api/stats", "", 200)
}

func TestNewRejectsInvalidConfigAndNoRepairDisablesRepairs(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	_, op := admintest.Service(t, client, 1)
	if _, err := httpapi.New(nil, httpapi.Config{}); err == nil {
		t.Error("New accepts a nil operator")
	}
	for want, cfg := range map[string]httpapi.Config{
		"Timeout": {Timeout: -1}, "MaxOperations": {MaxOperations: -1}, "MaxScans": {MaxScans: -1},
	} {
		cfg.Authorize = everybody
		if _, err := httpapi.New(op, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	if _, err := httpapi.New(op, httpapi.Config{}); err == nil || !strings.Contains(err.Error(), "Authorize") {
		t.Errorf("without an authorizer: %v", err)
	}
	h, err := httpapi.New(op, httpapi.Config{NoRepair: true, Authorize: everybody})
	redistest.Must(t, err)
	replied[any](t, h, http.MethodGet, "/api/check", "", http.StatusForbidden)
	replied[any](t, h, http.MethodPost, "/api/fix", "{}", http.StatusForbidden)
	replied[any](t, h, http.MethodGet, "/parked", "", http.StatusNotFound) // no console was given
	replied[any](t, h, http.MethodGet, "/api/parked", "", http.StatusOK)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
