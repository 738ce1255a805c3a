package console_test

import (
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/console"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// site is a console as seen by a browser without JavaScript.
type site struct {
	handler http.Handler
	access  httpapi.Access
	pages   map[string]httpapi.Access // by method and pattern
}

// newSite mounts a console under a prefix. Set the field access to change the rights of the next requests.
func newSite(t testing.TB, op *admin.Operator, change func(*httpapi.Config)) *site {
	t.Helper()
	s := &site{access: httpapi.MayPurge, pages: map[string]httpapi.Access{}}
	cfg := httpapi.Config{
		Title: "staging", Logger: slog.New(slog.DiscardHandler),
		Authorize: func(*http.Request) (httpapi.Identity, error) {
			return httpapi.Identity{Name: "bob", May: s.access, Payloads: true}, nil
		},
	}
	if change != nil {
		change(&cfg)
	}
	cfg.Console = func(d *desk.Desk) (guard.Pages, error) {
		pages, err := console.New(d)
		for _, page := range pages.Routes {
			s.pages[strings.TrimSuffix(page.Pattern, "{$}")] = page.Needs
		}
		return pages, err
	}
	h, err := httpapi.New(op, cfg)
	redistest.Must(t, err)
	t.Cleanup(h.Close)
	s.handler = http.StripPrefix("/ops/luatx", h)
	return s
}

const sitePrefix = "/ops/luatx/"

func (s *site) ask(t testing.TB, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	reply := httptest.NewRecorder()
	s.handler.ServeHTTP(reply, r.WithContext(redistest.Soon(t)))
	return reply
}

// get reads a page. The address is relative to the prefix, unless it begins with a slash.
func (s *site) get(t testing.TB, to string) (status int, page string) {
	t.Helper()
	if !strings.HasPrefix(to, "/") {
		to = sitePrefix + to
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, to, nil)
	r.Header.Set("Accept", "text/html")
	reply := s.ask(t, r)
	return reply.Code, reply.Body.String()
}

// post sends a form, and returns the location of a redirect.
func (s *site) post(t testing.TB, to string, form url.Values) (status int, page, location string) {
	t.Helper()
	return s.send(t, to, "application/x-www-form-urlencoded", strings.NewReader(form.Encode()))
}

// send posts a form of a content type.
func (s *site) send(t testing.TB, to, kind string, body io.Reader) (status int, page, location string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, sitePrefix+to, body)
	r.Header.Set("Content-Type", kind)
	reply := s.ask(t, r)
	if location = reply.Header().Get("Location"); location != "" {
		location = resolved(t, sitePrefix+to, location)
	}
	return reply.Code, reply.Body.String(), location
}

func resolved(t testing.TB, page, address string) string {
	t.Helper()
	base, err := url.Parse(page)
	redistest.Must(t, err)
	to, err := url.Parse(address)
	redistest.Must(t, err)
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

// elements lists the elements of pages. None of them runs or loads anything, except the script and the style, whose
// addresses are within the console.
const elements = " !doctype html head meta title link script noscript body a header div svg path rect polyline span form input button nav ul li main p " +
	"footer dialog h1 h2 h3 dl dt dd kbd label section strong small figure figcaption table caption thead tbody tr th td time progress datalist option " +
	"pre br code details summary textarea "

// foreign returns the first part of a page that a text from outside may have added: an unknown element, an unknown attribute,
// an address outside the console, or an inline script.
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
		for word := range strings.FieldsSeq(quoted.ReplaceAllString(tag[2], "")) {
			if attribute := strings.ToLower(word); strings.HasPrefix(attribute, "on") || strings.HasPrefix(attribute, "style") || strings.ContainsAny(attribute, `"'`) {
				return tag[0]
			}
		}
	}
	if strings.Count(page, "<") != len(tags.FindAllString(page, -1)) {
		return "a < outside of a tag"
	}
	return ""
}

// formOf returns the fields of the confirming form of a page.
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

// parkAs parks due events, each with its type as class.
func parkAs(t testing.TB, tr *luatx.Transactor, n int64) {
	t.Helper()
	admintest.ParkDue(t, tr, n, (*message.RawMessage).Type)
}

// enqueue adds an event with a type and a destination to the outbox.
func enqueue(t testing.TB, tr *luatx.Transactor, aggregate, id, kind, destination, data string) {
	t.Helper()
	msg := message.NewTyped([]byte(data), message.Attributes{
		"specversion": "1.0", "id": id, "type": kind, "source": "/shop", "destination": destination, "datacontenttype": "application/json", "note": kind,
	}, nil)
	body, err := msg.MarshalJSON()
	redistest.Must(t, err)
	_, err = tr.Enqueue(redistest.Soon(t), aggregate, luatx.Event{ID: id, Body: body})
	redistest.Must(t, err)
}

func TestEveryReachablePageWorksUnderPrefixAndContainsNoForeignMarkup(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, op := admintest.Service(t, client, 4)
		s := newSite(t, op, func(cfg *httpapi.Config) { cfg.Streams = []string{"in{" + tr.Config().Namespace + "}"} })
		for to, want := range map[string]string{
			"": "Nothing is stuck", "parked": "Nothing is parked", "operations": "No operations yet", "audit": "No operator actions", "streams": "No group reads this stream",
			"timers": "No timers in this state", "timers?state=decided&text=x": "No timer matches the filter",
			"processes": "No relay is alive", "processes?kind=repair": "No process is registered",
			"event?id=nobody": "No shard has an event", "inbox?aggregate=a&scope=shop/h&id=1": "it will be processed", "doctor?check=1": "The shards are consistent",
			"preview-rearm?class=http_422": "No parked event matches any more", "help": "Keys",
		} {
			if status, page := s.get(t, to); status != http.StatusOK || !strings.Contains(page, want) {
				t.Errorf("%s of an empty service: status %d; want a page with %q:\n%s", to, status, want, page)
			}
		}
		enqueue(t, tr, "a", "1", "http_422", "bank", `{"amount":1}`)
		enqueue(t, tr, "a", "2", "http_500", "bank", `{"amount":2}`)
		enqueue(t, tr, "b", "3", "http_422", "mail", `{"amount":3}`)
		parkAs(t, tr, 3)
		enqueue(t, tr, "b", "4", "later", "mail", `{"amount":4}`)
		redistest.Eventually(t, "new numbers", func() bool { _, page := s.get(t, ""); return strings.Contains(page, "3 events are parked") })
		for to, want := range map[string]string{
			"parked?class=http_422": "http_422", "event?slot=16383&id=nobody": "no shard of the keyspace", "operations/nobody": "Operation not found",
			"parked?older_than=soon": "older_than", "preview-rearm?class=http_422&rate=fast": "use a number", "static/other.css": "File not found",
		} {
			if _, page := s.get(t, to); !strings.Contains(html.UnescapeString(page), want) {
				t.Errorf("%s does not contain %q:\n%s", to, want, page)
			}
		}
		if seen := crawl(t, s); seen < 30 {
			t.Errorf("links lead to %d addresses, want at least 30", seen)
		}
	})
}

// crawl follows every link from the overview, and returns the number of pages.
func crawl(t testing.TB, s *site) int {
	t.Helper()
	open, seen := []string{sitePrefix}, map[string]bool{sitePrefix: true}
	for len(open) > 0 {
		at := open[0]
		open = open[1:]
		status, page := s.get(t, at)
		if status != http.StatusOK && status != http.StatusSeeOther {
			t.Errorf("%s: status %d\n%s", at, status, page)
		}
		if strings.Contains(at, "/static/") || strings.Contains(at, "/api/") {
			continue
		}
		if found := foreign(page); found != "" {
			t.Errorf("%s contains foreign markup %q", at, found)
		}
		for _, found := range hrefs.FindAllStringSubmatch(page, -1) {
			to := html.UnescapeString(found[1])
			if strings.HasPrefix(to, "#") {
				continue
			}
			to, _, _ = strings.Cut(resolved(t, at, to), "#")
			if !strings.HasPrefix(to, sitePrefix) {
				t.Errorf("%s links to %s, outside the console", at, to)
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

func TestThemeSwitchWorksWithoutJavaScriptAndRedirectsOnlyWithinConsole(t *testing.T) {
	t.Parallel()
	_, op := admintest.Service(t, redistest.Shared(t).Client(t), 1)
	s := newSite(t, op, nil)
	for to, want := range map[string]string{
		"parked?class=a%26b": "parked?class=a%26b", "operations/X1": "operations/X1", "": "", "//elsewhere.example/x": "", "https://elsewhere.example": "",
		"../../x": "", "/etc": "", `\\elsewhere`: "", "javascript:alert(1)": "", "parked?class=%zz": "parked?class=%zz",
	} {
		status, _, location := s.post(t, "theme", url.Values{"theme": {"dark"}, "to": {to}})
		if status != http.StatusSeeOther || strings.TrimPrefix(location, sitePrefix) != want {
			t.Errorf("to=%q: status %d, location %q; want %q", to, status, location, want)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, sitePrefix, nil)
	r.AddCookie(&http.Cookie{Name: "luatx_theme", Value: "dark"})
	if page := s.ask(t, r).Body.String(); !strings.Contains(page, `data-theme="dark"`) {
		t.Error("page ignores the theme cookie")
	}
	if status, _, _ := s.post(t, "theme", url.Values{"theme": {"pink"}}); status != http.StatusBadRequest {
		t.Errorf("theme pink: status %d, want %d", status, http.StatusBadRequest)
	}
}

func TestAssetsHaveImmutableNamesThatDependOnTheirContent(t *testing.T) {
	t.Parallel()
	_, op := admintest.Service(t, redistest.Shared(t).Client(t), 1)
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
		if reply.Code != http.StatusOK || reply.Header().Get("Content-Type") != kind || !strings.Contains(reply.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: status %d, header %v", match[1], reply.Code, reply.Header())
		}
	}
	if found != 3 {
		t.Errorf("page links %d static files, want 3", found)
	}
}

func TestConsoleReportsUnreachableServerAndRecovers(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	_, op := admintest.Service(t, server.Client(t), 4)
	s := newSite(t, op, func(cfg *httpapi.Config) { cfg.Timeout = time.Second })
	pages := []string{"", "parked", "event?id=1", "audit", "doctor", "preview-rearm"}
	redistest.Must(t, server.Stop())
	for _, to := range pages {
		if status, page := s.get(t, to); status < 500 || !strings.Contains(page, "<h1>") || foreign(page) != "" {
			t.Errorf("%s while the server is stopped: status %d; want an error page\n%s", to, status, page)
		}
	}
	redistest.Must(t, server.Restart(redistest.Soon(t)))
	for _, to := range pages {
		redistest.Eventually(t, "page "+to+" after the restart", func() bool { status, _ := s.get(t, to); return status == http.StatusOK })
	}
}
