package admin_test

import (
	"context"
	"errors"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/internal/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

// site is a console as a browser without JavaScript sees it.
type site struct {
	handler http.Handler
	who     admin.Access
}

// newSite mounts a console under a prefix, for whoever may do what who says at the time.
func newSite(t testing.TB, op *admin.Operator, change func(*admin.HandlerConfig)) *site {
	t.Helper()
	s := &site{who: admin.MayPurge}
	cfg := admin.HandlerConfig{
		Title: "staging", Logger: slog.New(slog.DiscardHandler),
		Authorize: func(*http.Request) (admin.Identity, error) { return admin.Identity{Name: "bob", May: s.who}, nil },
	}
	if change != nil {
		change(&cfg)
	}
	h, err := admin.NewHandler(op, cfg)
	must(t, err)
	t.Cleanup(h.Close)
	s.handler = http.StripPrefix("/ops/luatx", h)
	return s
}

const sitePrefix = "/ops/luatx/"

func (s *site) ask(t testing.TB, r *http.Request) *http.Response {
	t.Helper()
	reply := httptest.NewRecorder()
	s.handler.ServeHTTP(reply, r.WithContext(redistest.Soon(t)))
	return reply.Result()
}

// get reads a page; to is its address behind the prefix, or one that begins with a slash.
func (s *site) get(t testing.TB, to string) (status int, page string) {
	t.Helper()
	if !strings.HasPrefix(to, "/") {
		to = sitePrefix + to
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, to, nil)
	r.Header.Set("Accept", "text/html")
	reply := s.ask(t, r)
	text, err := io.ReadAll(reply.Body)
	must(t, err)
	return reply.StatusCode, string(text)
}

// post sends a form, and returns where it leads to, if it leads anywhere.
func (s *site) post(t testing.TB, to string, form url.Values) (status int, page, location string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, sitePrefix+to, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	reply := s.ask(t, r)
	text, err := io.ReadAll(reply.Body)
	must(t, err)
	if location = reply.Header.Get("Location"); location != "" {
		location = resolved(t, sitePrefix+to, location)
	}
	return reply.StatusCode, string(text), location
}

func resolved(t testing.TB, page, address string) string {
	t.Helper()
	base, err := url.Parse(page)
	must(t, err)
	to, err := url.Parse(address)
	must(t, err)
	return base.ResolveReference(to).String()
}

var (
	hrefs    = regexp.MustCompile(`\s(?:href|src)="([^"]*)"`)
	hiddens  = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
	settings = regexp.MustCompile(`<input data-setting name="([^"]*)"[^>]* value="([^"]*)"`)
	tags     = regexp.MustCompile(`<([a-zA-Z!/][^\s<>]*)([^<>]*)>([^<]*)`)
	quoted   = regexp.MustCompile(`"[^"]*"`)
	leading  = regexp.MustCompile(`\s(?:href|src|action|formaction)="([^"]*)"`)
)

// elements are those that pages are made of. None of them runs or loads anything, but for the script and the style, which have
// addresses within the console.
const elements = " !doctype html head meta title link script noscript body a header div svg path rect polyline span form input button nav ul li main p " +
	"footer dialog h1 h2 h3 dl dt dd kbd label section strong small figure figcaption table caption thead tbody tr th td time progress datalist option " +
	"pre br code "

// foreign returns what of a page is not the console's own: an element, an attribute or an address that it does not use, or text
// where only code may be.
func foreign(page string) string {
	for _, tag := range tags.FindAllStringSubmatch(page, -1) {
		name := strings.TrimPrefix(strings.ToLower(tag[1]), "/")
		if !strings.Contains(elements, " "+name+" ") || name == "script" && strings.TrimSpace(tag[3]) != "" && tag[1] == "script" {
			return tag[0]
		}
		for _, address := range leading.FindAllStringSubmatch(tag[2], -1) {
			if !strings.HasPrefix(address[1], "./") && !strings.HasPrefix(address[1], "../") && !strings.HasPrefix(address[1], "#") {
				return tag[0]
			}
		}
		for _, word := range strings.Fields(quoted.ReplaceAllString(tag[2], "")) {
			if attribute := strings.ToLower(word); strings.HasPrefix(attribute, "on") || strings.HasPrefix(attribute, "style") || strings.ContainsAny(attribute, `"'`) {
				return tag[0]
			}
		}
	}
	if strings.Count(page, "<") != len(tags.FindAllString(page, -1)) {
		return "a < that begins no element"
	}
	return ""
}

// formOf reads what the confirming form of a page would send.
func formOf(page, action string) url.Values {
	form := url.Values{}
	_, rest, _ := strings.Cut(page, action)
	rest, _, _ = strings.Cut(rest, "</form>")
	for _, of := range []*regexp.Regexp{hiddens, settings} {
		for _, found := range of.FindAllStringSubmatch(rest, -1) {
			form.Add(html.UnescapeString(found[1]), html.UnescapeString(found[2]))
		}
	}
	return form
}

// parkAs parks what is due, each event for the class that its type names.
func parkAs(t testing.TB, tr *luatx.Transactor, n int64) {
	t.Helper()
	r, err := relay.New(tr, relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
		errs := make([]error, len(events))
		for i, e := range events {
			errs[i] = relay.Classify(e.Type(), message.Permanent(errors.New("refused: "+e.Type())))
		}
		return errs
	}), relay.Config{SweepInterval: 10 * time.Millisecond, NoInline: true})
	must(t, err)
	stop := running(t, r.Run)
	defer stop()
	redistest.Eventually(t, "the events to be parked", func() bool {
		c, err := outbox.NewStore(tr).Counts(t.Context())
		return err == nil && c.Parked == n
	})
}

// enqueue puts an event of a type for a destination into the outbox.
func enqueue(t testing.TB, tr *luatx.Transactor, aggregate, id, kind, destination, data string) {
	t.Helper()
	msg := message.NewTyped([]byte(data), message.Attributes{
		"specversion": "1.0", "id": id, "type": kind, "source": "/shop", "destination": destination, "datacontenttype": "application/json", "note": kind,
	}, nil)
	body, err := msg.MarshalJSON()
	must(t, err)
	_, err = tr.Enqueue(redistest.Soon(t), aggregate, luatx.Event{ID: id, Body: body})
	must(t, err)
}

// TestConsolePages holds that every page that can be reached shows, wherever the console is mounted, and that nothing of it
// needs what the content security policy forbids.
func TestConsolePages(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, op := service(t, client, 4)
		s := newSite(t, op, func(cfg *admin.HandlerConfig) { cfg.Streams = []string{"in{" + tr.Config().Namespace + "}"} })
		for to, want := range map[string]string{
			"": "Nothing is stuck", "parked": "Nothing is parked", "operations": "Nothing yet", "audit": "Nobody did anything", "streams": "No group reads it",
			"event?id=nobody": "No shard knows", "inbox?aggregate=a&scope=shop/h&id=1": "it would be applied", "doctor?check=1": "Nothing disagrees",
			"preview-rearm?class=http_422": "No parked event is meant any more", "help": "Keys",
		} {
			if status, page := s.get(t, to); status != http.StatusOK || !strings.Contains(page, want) {
				t.Errorf("%s of an empty service: %d, and not %q:\n%s", to, status, want, page)
			}
		}
		enqueue(t, tr, "a", "1", "http_422", "bank", `{"amount":1}`)
		enqueue(t, tr, "a", "2", "http_500", "bank", `{"amount":2}`)
		enqueue(t, tr, "b", "3", "http_422", "mail", `{"amount":3}`)
		parkAs(t, tr, 3)
		enqueue(t, tr, "b", "4", "later", "mail", `{"amount":4}`)
		redistest.Eventually(t, "new numbers", func() bool { _, page := s.get(t, ""); return strings.Contains(page, "3 events are parked") })
		for to, want := range map[string]string{
			"parked?class=http_422": "http_422", "event?slot=16383&id=nobody": "no shard of the keyspace", "operations/nobody": "There is no such operation",
			"parked?older_than=soon": "older_than", "preview-rearm?class=http_422&rate=fast": "use a number", "static/other.css": "There is no such file",
		} {
			if _, page := s.get(t, to); !strings.Contains(html.UnescapeString(page), want) {
				t.Errorf("%s: not %q:\n%s", to, want, page)
			}
		}
		if seen := crawl(t, s); seen < 30 {
			t.Errorf("only %d addresses can be reached", seen)
		}
	})
}

// crawl follows every link from the overview on, and returns how many there are.
func crawl(t testing.TB, s *site) int {
	t.Helper()
	open, seen := []string{sitePrefix}, map[string]bool{sitePrefix: true}
	for len(open) > 0 {
		at := open[0]
		open = open[1:]
		status, page := s.get(t, at)
		if status != http.StatusOK && status != http.StatusSeeOther {
			t.Errorf("%s: %d\n%s", at, status, page)
		}
		if strings.Contains(at, "/static/") || strings.Contains(at, "/api/") {
			continue
		}
		if found := foreign(page); found != "" {
			t.Errorf("%s has %q, which is none of its own", at, found)
		}
		for _, found := range hrefs.FindAllStringSubmatch(page, -1) {
			to := html.UnescapeString(found[1])
			if strings.HasPrefix(to, "#") {
				continue
			}
			to, _, _ = strings.Cut(resolved(t, at, to), "#")
			if !strings.HasPrefix(to, sitePrefix) {
				t.Errorf("%s leads to %s, out of the console", at, to)
				continue
			}
			if !seen[to] && len(seen) < 300 {
				seen[to] = true
				open = append(open, to)
			}
		}
	}
	return len(seen)
}

// TestConsoleEscapes holds that what comes from events, from filters and from addresses is text and nothing else.
func TestConsoleEscapes(t *testing.T) {
	t.Parallel()
	tr, op := service(t, redistest.Shared(t).Client(t), 1)
	payloads := []string{
		`<script>pwned()</script>`, `"><img src=x onerror=pwned()>`, `'><svg onload='pwned()'>`, `javascript:pwned()`,
		`</textarea></pre><iframe src=javascript:pwned()>`, `{{.}}<b>`, "\u2028<!--pwned-->",
	}
	for i, p := range payloads {
		enqueue(t, tr, "a", p, p, p, `{"text":"`+strings.ReplaceAll(p, `"`, `\"`)+`","n":`+strconv.Itoa(i)+`}`)
	}
	parkAs(t, tr, int64(len(payloads)))
	s := newSite(t, op, func(cfg *admin.HandlerConfig) { cfg.Title = payloads[0] })
	if seen := crawl(t, s); seen < 30 {
		t.Errorf("only %d addresses can be reached", seen)
	}
	inert := func(to string, status int, page string) {
		t.Helper()
		if found := foreign(page); found != "" {
			t.Errorf("%s (%d) lets through %q:\n%s", to, status, found, page)
		}
	}
	slot := "slot=" + slotText(t, tr, "a")
	for _, p := range payloads {
		q := url.QueryEscape(p)
		for _, to := range []string{
			"parked?text=" + q, "parked?class=" + q, "parked?destination=" + q + "&type=" + q + "&key=" + q + "&aggregate=" + q, "parked?older_than=" + q,
			"parked?cursor=" + q, "event?id=" + q, "event?" + slot + "&body=1&id=" + q, "event?slot=" + q + "&id=1", "preview-rearm?class=" + q + "&to=" + q,
			"preview-rearm?rate=" + q, "preview-discard?text=" + q + "&reason=" + q, "preview-rearm?event=" + q, "preview-rearm?event=" + url.QueryEscape("1:"+p),
			"streams?key=" + q, "inbox?aggregate=" + q + "&scope=" + q + "&source=" + q + "&id=" + q, "audit?since=" + q, "operations/" + url.PathEscape(p),
			"operations?of=" + q, url.PathEscape(p),
		} {
			status, page := s.get(t, to)
			inert(to, status, page)
			if strings.HasPrefix(to, "event?slot="+slotText(t, tr, "a")+"&body") && (status != http.StatusOK || !strings.Contains(page, html.EscapeString("pwned"))) {
				t.Errorf("%s does not show it: %d", to, status)
			}
		}
		for _, to := range []string{"rearm", "discard", "preview-rearm", "theme", "stop", "forget"} {
			status, page, location := s.post(t, to, url.Values{
				"event": {"1:" + p}, "confirm": {p}, "to": {p}, "reason": {p}, "theme": {p}, "id": {p}, "here": {p}, "count": {"1"}, "aggregate": {p},
			})
			inert(to, status, page)
			if location != "" && !strings.HasPrefix(location, sitePrefix) {
				t.Errorf("%s leads to %s", to, location)
			}
		}
	}
	if _, page := s.get(t, "parked"); !strings.Contains(page, "&lt;script&gt;pwned()&lt;/script&gt;") {
		t.Errorf("the list does not show what is there:\n%s", page)
	}
}

func slotText(t testing.TB, tr *luatx.Transactor, aggregate string) string {
	t.Helper()
	n, err := outbox.NewStore(tr).Slot(aggregate)
	must(t, err)
	return strconv.Itoa(n)
}

// TestConsoleRearm re-arms a class by forms alone: what is meant, a preview of it, a confirmation that names it, the work. What
// was not shown is not done.
func TestConsoleRearm(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, op := service(t, client, 4)
		for i := range 30 {
			enqueue(t, tr, "a"+strconv.Itoa(i%5), "bad"+strconv.Itoa(i), "http_422", "bank", `{}`)
		}
		enqueue(t, tr, "a1", "other", "http_500", "bank", `{}`)
		parkAs(t, tr, 31)
		s := newSite(t, op, nil)
		parkedNow := func() int64 {
			c, err := op.Outbox().Counts(redistest.Soon(t))
			must(t, err)
			return c.Parked
		}
		_, list := s.get(t, "parked?class=http_422")
		if !strings.Contains(list, `href="./preview-rearm?class=http_422"`) || strings.Contains(list, "other") {
			t.Fatalf("the list:\n%s", list)
		}
		_, page := s.get(t, "preview-rearm?class=http_422")
		form := formOf(page, `action="./rearm"`)
		sentence := "Re-arm 30 events of class http_422; 20 first; at most 500 a second; stop when more than 10 park again"
		if form.Get("confirm") != sentence || form.Get("canary") != "20" || !strings.Contains(page, ">"+sentence+"</button>") {
			t.Fatalf("the preview asks for %q with %v", form.Get("confirm"), form)
		}

		// Neither an unconfirmed nor another act than was shown is done.
		for name, change := range map[string]func(url.Values){
			"not confirmed": func(f url.Values) { f.Del("confirm") },
			"more":          func(f url.Values) { f.Set("count", "31") },
			"no filter":     func(f url.Values) { f.Del("class") },
			"no canary":     func(f url.Values) { f.Set("canary", "0") },
			"elsewhere":     func(f url.Values) { f.Set("to", "other") },
			"faster":        func(f url.Values) { f.Set("rate", "") },
		} {
			changed := formOf(page, `action="./rearm"`)
			change(changed)
			status, answer, location := s.post(t, "rearm", changed)
			if status != http.StatusOK || location != "" || !strings.Contains(answer, "Nothing has happened yet") || parkedNow() != 31 {
				t.Errorf("%s: %d to %q; %d are parked", name, status, location, parkedNow())
			}
		}

		// Without a canary, since no relay runs; shown first, and then done.
		form.Set("canary", "0")
		_, page, _ = s.post(t, "rearm", form)
		status, _, location := s.post(t, "rearm", formOf(page, `action="./rearm"`))
		if status != http.StatusSeeOther || !strings.HasPrefix(location, sitePrefix+"operations/") {
			t.Fatalf("%d to %q:\n%s", status, location, page)
		}
		redistest.Eventually(t, "the work to be done", func() bool {
			_, page := s.get(t, location)
			return strings.Contains(page, "<strong>done</strong>") && strings.Contains(page, "30 done")
		})
		if n := parkedNow(); n != 1 {
			t.Errorf("%d are parked", n)
		}
		if _, page := s.get(t, "audit"); !strings.Contains(page, "bob") || !strings.Contains(html.UnescapeString(page), `class="http_422"`) {
			t.Errorf("the audit:\n%s", page)
		}
		if _, page := s.get(t, "operations"); !strings.Contains(page, "Re-arm") || !strings.Contains(page, "bob") {
			t.Errorf("the work:\n%s", page)
		}
	})
}

// TestConsoleSelection re-arms one and discards another of what was selected, and nothing else.
func TestConsoleSelection(t *testing.T) {
	t.Parallel()
	tr, op := service(t, redistest.Shared(t).Client(t), 4)
	for _, id := range []string{"1", "2", "3"} {
		enqueue(t, tr, "a", id, "http_422", "bank", `{}`)
	}
	parkAs(t, tr, 3)
	s := newSite(t, op, nil)
	name := slotText(t, tr, "a") + ":"
	_, page, _ := s.post(t, "preview-rearm", url.Values{"event": {name + "1"}})
	form := formOf(page, `action="./rearm"`)
	if form.Get("confirm") != "Re-arm 1 event selected by id; at most 500 a second" || form.Get("event") != name+"1" {
		t.Fatalf("%v", form)
	}
	status, _, location := s.post(t, "rearm", form)
	if status != http.StatusSeeOther {
		t.Fatalf("%d", status)
	}
	redistest.Eventually(t, "the work to be done", func() bool { _, page := s.get(t, location); return strings.Contains(page, "<strong>done") })

	_, page, _ = s.post(t, "preview-discard", url.Values{"event": {name + "2"}})
	form = formOf(page, `action="./discard"`)
	for what, change := range map[string]func(url.Values){
		"no reason":     func(f url.Values) { f.Set("sure", "yes") },
		"not sure":      func(f url.Values) { f.Set("reason", "a test") },
		"not confirmed": func(f url.Values) { f.Set("sure", "yes"); f.Set("reason", "a test"); f.Del("confirm") },
	} {
		changed := formOf(page, `action="./discard"`)
		change(changed)
		if status, answer, _ := s.post(t, "discard", changed); status != http.StatusOK || !strings.Contains(answer, "Nothing has happened yet") {
			t.Errorf("%s: %d", what, status)
		}
	}
	form.Set("sure", "yes")
	form.Set("reason", "a test")
	if status, _, location = s.post(t, "discard", form); status != http.StatusSeeOther {
		t.Fatalf("%d", status)
	}
	redistest.Eventually(t, "the work to be done", func() bool { _, page := s.get(t, location); return strings.Contains(page, "<strong>done") })
	states := map[string]outbox.State{}
	for _, id := range []string{"1", "2", "3"} {
		for e, err := range op.Find(redistest.Soon(t), id) {
			must(t, err)
			states[id] = e.State
		}
	}
	if len(states) != 2 || states["1"] != outbox.Pending || states["3"] != outbox.Parked {
		t.Errorf("%v", states)
	}
}

// TestConsoleHidesBodies holds that a body is shown to whoever asks for it, and to nobody else, and as it was redacted.
func TestConsoleHidesBodies(t *testing.T) {
	t.Parallel()
	tr, op := service(t, redistest.Shared(t).Client(t), 1)
	enqueue(t, tr, "a", "1", "http_422", "bank", `{"card":"4000-secret"}`)
	parkAs(t, tr, 1)
	at := "event?slot=" + slotText(t, tr, "a") + "&id=1"
	s := newSite(t, op, nil)
	if _, page := s.get(t, at); strings.Contains(page, "4000-secret") || !strings.Contains(page, "Show the body") {
		t.Errorf("unasked:\n%s", page)
	}
	if _, page := s.get(t, at+"&body=1"); !strings.Contains(html.UnescapeString(page), "{\n  \"card\": \"4000-secret\"\n}") {
		t.Errorf("asked for:\n%s", page)
	}
	s = newSite(t, op, func(cfg *admin.HandlerConfig) {
		cfg.Redact = func(_ outbox.Event, p admin.Payload) admin.Payload {
			return admin.Payload{Attributes: map[string]string{"note": "blackened"}, Data: []byte(`"blackened"`)}
		}
	})
	if _, page := s.get(t, at+"&body=1"); strings.Contains(page, "4000-secret") || strings.Contains(page, "/shop") || !strings.Contains(page, "blackened") {
		t.Errorf("redacted:\n%s", page)
	}
}

// TestConsoleOffers holds that what somebody may not do is neither offered nor done.
func TestConsoleOffers(t *testing.T) {
	t.Parallel()
	tr, op := service(t, redistest.Shared(t).Client(t), 1)
	enqueue(t, tr, "a", "1", "http_422", "bank", `{}`)
	parkAs(t, tr, 1)
	s := newSite(t, op, nil)
	at := "event?slot=" + slotText(t, tr, "a") + "&id=1"
	offered := func(to string) (rearm, discard bool) {
		_, page := s.get(t, to)
		return strings.Contains(page, "preview-rearm"), strings.Contains(page, "preview-discard")
	}
	for _, to := range []string{"parked", at} {
		for who, want := range map[admin.Access][2]bool{admin.MayView: {}, admin.MayRetry: {true, false}, admin.MayPurge: {true, true}} {
			s.who = who
			if rearm, discard := offered(to); [2]bool{rearm, discard} != want {
				t.Errorf("%s for who may %v: re-arm %v, discard %v", to, who, rearm, discard)
			}
		}
	}
	s.who = admin.MayRetry
	if status, page := s.get(t, "preview-discard"); status != http.StatusForbidden || !strings.Contains(page, "<h1>") {
		t.Errorf("preview-discard: %d\n%s", status, page)
	}
	if status, _, _ := s.post(t, "discard", url.Values{}); status != http.StatusForbidden {
		t.Errorf("discard: %d", status)
	}
	s.who = admin.MayView
	for _, to := range []string{"rearm", "preview-rearm", "stop", "fix", "discard", "forget"} {
		if status, _, _ := s.post(t, to, url.Values{}); status != http.StatusForbidden {
			t.Errorf("%s: %d", to, status)
		}
	}
}

// TestConsoleTheme holds that the switch works without JavaScript, and that it leads nowhere else.
func TestConsoleTheme(t *testing.T) {
	t.Parallel()
	_, op := service(t, redistest.Shared(t).Client(t), 1)
	s := newSite(t, op, nil)
	for to, want := range map[string]string{
		"parked?class=a%26b": "parked?class=a%26b", "operations/X1": "operations/X1", "": "", "//elsewhere.example/x": "", "https://elsewhere.example": "",
		"../../x": "", "/etc": "", `\\elsewhere`: "", "javascript:alert(1)": "", "parked?class=%zz": "parked?class=%zz",
	} {
		status, _, location := s.post(t, "theme", url.Values{"theme": {"dark"}, "to": {to}})
		if status != http.StatusSeeOther || strings.TrimPrefix(location, sitePrefix) != want {
			t.Errorf("%q: %d to %q", to, status, location)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, sitePrefix, nil)
	r.AddCookie(&http.Cookie{Name: "luatx_theme", Value: "dark"})
	page, err := io.ReadAll(s.ask(t, r).Body)
	must(t, err)
	if !strings.Contains(string(page), `data-theme="dark"`) {
		t.Errorf("the cookie is not seen:\n%s", page)
	}
	if status, _, _ := s.post(t, "theme", url.Values{"theme": {"pink"}}); status != http.StatusBadRequest {
		t.Errorf("pink: %d", status)
	}
}

// TestConsoleAssets holds that a file is served under a name that tells what is in it, to be kept.
func TestConsoleAssets(t *testing.T) {
	t.Parallel()
	_, op := service(t, redistest.Shared(t).Client(t), 1)
	s := newSite(t, op, nil)
	_, page := s.get(t, "help")
	found := 0
	for _, match := range hrefs.FindAllStringSubmatch(page, -1) {
		if !strings.Contains(match[1], "static/") {
			continue
		}
		found++
		reply := s.ask(t, httptest.NewRequestWithContext(t.Context(), http.MethodGet, resolved(t, sitePrefix, match[1]), nil))
		kind := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}[path.Ext(match[1])]
		if reply.StatusCode != http.StatusOK || reply.Header.Get("Content-Type") != kind || !strings.Contains(reply.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", match[1], reply.StatusCode, reply.Header)
		}
	}
	if found != 3 {
		t.Errorf("%d files", found)
	}
}
