package console_test

import (
	"html"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
)

func TestEventsFiltersAndAddressesAreEscaped(t *testing.T) {
	t.Parallel()
	tr, op := admintest.Service(t, redistest.Shared(t).Client(t), 1)
	payloads := []string{
		`<script>pwned()</script>`, `"><img src=x onerror=pwned()>`, `'><svg onload='pwned()'>`, `javascript:pwned()`,
		`</textarea></pre><iframe src=javascript:pwned()>`, `{{.}}<b>`, "\u2028<!--pwned-->",
	}
	for i, p := range payloads {
		enqueue(t, tr, "a", p, p, p, `{"text":"`+strings.ReplaceAll(p, `"`, `\"`)+`","n":`+strconv.Itoa(i)+`}`)
	}
	parkAs(t, tr, int64(len(payloads)))
	s := newSite(t, op, func(cfg *httpapi.Config) { cfg.Title = payloads[0] })
	if seen := crawl(t, s); seen < 30 {
		t.Errorf("links lead to %d addresses, want at least 30", seen)
	}
	inert := func(to string, status int, page string) {
		t.Helper()
		if found := foreign(page); found != "" {
			t.Errorf("%s (status %d) contains unescaped markup %q:\n%s", to, status, found, page)
		}
	}
	slot := "slot=" + slotText(t, tr, "a")
	for _, p := range payloads {
		q := url.QueryEscape(p)
		for _, to := range []string{
			"parked?text=" + q, "parked?class=" + q, "parked?destination=" + q + "&type=" + q + "&key=" + q + "&aggregate=" + q, "parked?older_than=" + q,
			"parked?cursor=" + q, "event?id=" + q, "event?" + slot + "&body=1&id=" + q, "event?slot=" + q + "&id=1", "preview-rearm?class=" + q + "&to=" + q,
			"preview-rearm?rate=" + q, "events?state=" + q, "events?cursor=" + q + "&text=" + q, "preview-events-park?class=" + q + "&reason=" + q,
			"preview-events-reschedule?at=" + q, "blocked?key=" + q, "blocked?cursor=" + q, "preview-discard?text=" + q + "&reason=" + q, "preview-rearm?event=" + q, "preview-rearm?event=" + url.QueryEscape("1:"+p),
			"streams?key=" + q, "inbox?aggregate=" + q + "&scope=" + q + "&source=" + q + "&id=" + q, "audit?since=" + q, "operations/" + url.PathEscape(p),
			"operations?of=" + q, url.PathEscape(p),
		} {
			status, page := s.get(t, to)
			inert(to, status, page)
			if strings.HasPrefix(to, "event?slot="+slotText(t, tr, "a")+"&body") && (status != http.StatusOK || !strings.Contains(page, html.EscapeString("pwned"))) {
				t.Errorf("%s does not show the body: status %d", to, status)
			}
		}
		for _, to := range []string{"rearm", "discard", "preview-rearm", "events-park", "events-reschedule", "preview-events-discard", "theme", "stop", "forget"} {
			status, page, location := s.post(t, to, url.Values{
				"event": {"1:" + p}, "confirm": {p}, "to": {p}, "reason": {p}, "theme": {p}, "id": {p}, "here": {p}, "count": {"1"}, "aggregate": {p},
			})
			inert(to, status, page)
			if location != "" && !strings.HasPrefix(location, sitePrefix) {
				t.Errorf("%s redirects to %s, outside the console", to, location)
			}
		}
	}
	if _, page := s.get(t, "parked"); !strings.Contains(page, "&lt;script&gt;pwned()&lt;/script&gt;") {
		t.Errorf("list does not show the escaped text:\n%s", page)
	}
}

func slotText(t testing.TB, tr *luatx.Transactor, aggregate string) string {
	t.Helper()
	n, err := outbox.NewStore(tr).Slot(aggregate)
	redistest.Must(t, err)
	return strconv.Itoa(n)
}

func TestConsoleShowsBodiesOnlyOnRequestAndRedacted(t *testing.T) {
	t.Parallel()
	tr, op := admintest.Service(t, redistest.Shared(t).Client(t), 1)
	enqueue(t, tr, "a", "1", "http_422", "bank", `{"card":"4000-secret"}`)
	parkAs(t, tr, 1)
	at := "event?slot=" + slotText(t, tr, "a") + "&id=1"
	s := newSite(t, op, nil)
	if _, page := s.get(t, at); strings.Contains(page, "4000-secret") || !strings.Contains(page, "Show the body") {
		t.Errorf("page shows the body without a request, or offers no link to it:\n%s", page)
	}
	if _, page := s.get(t, at+"&body=1"); !strings.Contains(html.UnescapeString(page), "{\n  \"card\": \"4000-secret\"\n}") {
		t.Errorf("page does not show the requested body:\n%s", page)
	}
	s = newSite(t, op, func(cfg *httpapi.Config) {
		cfg.Redact = func(_ outbox.Event, p httpapi.Payload) httpapi.Payload {
			return httpapi.Payload{Attributes: map[string]string{"note": "blackened"}, Data: []byte(`"blackened"`)}
		}
	})
	if _, page := s.get(t, at+"&body=1"); strings.Contains(page, "4000-secret") || strings.Contains(page, "/shop") || !strings.Contains(page, "blackened") {
		t.Errorf("page does not show the redacted body:\n%s", page)
	}
}

func TestConsoleOffersAndRunsOnlyOperationsThatReaderMayRun(t *testing.T) {
	t.Parallel()
	tr, op := admintest.Service(t, redistest.Shared(t).Client(t), 1)
	enqueue(t, tr, "a", "1", "http_422", "bank", `{}`)
	parkAs(t, tr, 1)
	s := newSite(t, op, nil)
	at := "event?slot=" + slotText(t, tr, "a") + "&id=1"
	offered := func(to string) (rearm, discard bool) {
		_, page := s.get(t, to)
		return strings.Contains(page, "preview-rearm"), strings.Contains(page, "preview-discard")
	}
	for _, to := range []string{"parked", at} {
		for access, want := range map[httpapi.Access][2]bool{httpapi.MayView: {}, httpapi.MayRetry: {true, false}, httpapi.MayPurge: {true, true}} {
			s.access = access
			if rearm, discard := offered(to); [2]bool{rearm, discard} != want {
				t.Errorf("%s for access %v: offers re-arm %v, discard %v; want %v", to, access, rearm, discard, want)
			}
		}
	}
	s.access = httpapi.MayRetry
	if status, page := s.get(t, "preview-discard"); status != http.StatusForbidden || !strings.Contains(page, "<h1>") {
		t.Errorf("preview-discard: status %d, want %d\n%s", status, http.StatusForbidden, page)
	}
	if status, _, _ := s.post(t, "discard", url.Values{}); status != http.StatusForbidden {
		t.Errorf("discard: status %d, want %d", status, http.StatusForbidden)
	}
	s.access = httpapi.MayView
	for _, to := range []string{"rearm", "preview-rearm", "stop", "fix", "discard", "forget", "pause", "resume"} {
		if status, _, _ := s.post(t, to, url.Values{}); status != http.StatusForbidden {
			t.Errorf("%s: status %d, want %d", to, status, http.StatusForbidden)
		}
	}
}
