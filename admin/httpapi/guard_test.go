package httpapi_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/console"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// handler returns a handler for a new service on the server.
func handler(t testing.TB, client redis.UniversalClient, cfg httpapi.Config) (*luatx.Transactor, *httpapi.Handler) {
	t.Helper()
	tr, op := admintest.Service(t, client, 4)
	return tr, newHandler(t, op, cfg)
}

// newHandler returns a handler with a console.
func newHandler(t testing.TB, op *admin.Operator, cfg httpapi.Config) *httpapi.Handler {
	t.Helper()
	if cfg.Authorize == nil {
		cfg.Authorize = everybody
	}
	cfg.Console = console.New
	h, err := httpapi.New(op, cfg)
	redistest.Must(t, err)
	t.Cleanup(h.Close)
	return h
}

// everybody authorizes every request as alice, with all rights.
func everybody(*http.Request) (httpapi.Identity, error) {
	return httpapi.Identity{Name: "alice", May: httpapi.MayPurge, Payloads: true}, nil
}

// pagesOf returns the rights that the pages of a handler's console need.
func pagesOf(t testing.TB, h *httpapi.Handler) map[string]httpapi.Access {
	t.Helper()
	pages, err := h.Pages()
	redistest.Must(t, err)
	return pages
}

// asked returns a request from this machine.
func asked(t testing.TB, method, target, body string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	r.RemoteAddr, r.Host = "127.0.0.1:1234", "localhost:8080"
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// answer returns the response of a handler.
func answer(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// problem decodes a problem, and checks the whole reply.
func problem(t testing.TB, w *httptest.ResponseRecorder) (p struct {
	Title, Detail string
	Status        int
},
) {
	t.Helper()
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("status %d is of type %q: %s", w.Code, got, w.Body)
	}
	redistest.Must(t, json.Unmarshal(w.Body.Bytes(), &p))
	if p.Status != w.Code || p.Title == "" {
		t.Errorf("status %d: %+v", w.Code, p)
	}
	return p
}

func TestGuardRejectsEachWrongRequestWithItsStatus(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	named := func(r *http.Request) (httpapi.Identity, error) {
		switch who := r.Header.Get("Who"); who {
		case "":
			return httpapi.Identity{}, httpapi.ErrUnknown
		case "mallory":
			return httpapi.Identity{Name: "mallory", May: httpapi.MayPurge}, errors.New("not today")
		case "nobody":
			return httpapi.Identity{May: httpapi.MayPurge}, nil
		default:
			return httpapi.Identity{Name: who, May: httpapi.MayView}, nil
		}
	}
	for name, c := range map[string]struct {
		cfg            httpapi.Config
		method, target string
		change         func(*http.Request)
		want           int
	}{
		"a sender with rights":                   {want: 200},
		"a probe":                                {target: "/readyz", want: 200},
		"a probe from an unknown sender":         {cfg: httpapi.Config{Authorize: named}, target: "/livez", change: func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" }, want: 200},
		"an unknown path":                        {target: "/api/none", want: 404},
		"a path outside the API":                 {target: "/api/../livez", want: 404},
		"two slashes":                            {target: "/api//stats", want: 404},
		"an escaped path":                        {target: "/api%2Fstats", want: 200},
		"an id with an escaped slash":            {target: "/api/operations/a%2Fb", want: 404},
		"an unknown path from an unknown sender": {cfg: httpapi.Config{Authorize: named}, target: "/api/none", want: 401},
		"a wrong method":                         {method: http.MethodPut, want: 405},
		"a wrong method from an unknown sender":  {cfg: httpapi.Config{Authorize: named}, method: http.MethodPut, want: 401},
		"a change with GET":                      {target: "/api/parked/rearm", want: 405},
		"HEAD":                                   {method: http.MethodHead, want: 200},
		"OPTIONS":                                {method: http.MethodOptions, want: 405},
		"an unknown sender":                      {cfg: httpapi.Config{Authorize: named}, want: 401},
		"a rejected sender":                      {cfg: httpapi.Config{Authorize: named}, change: func(r *http.Request) { r.Header.Set("Who", "mallory") }, want: 403},
		"a sender without a name":                {cfg: httpapi.Config{Authorize: named}, change: func(r *http.Request) { r.Header.Set("Who", "nobody") }, want: 403},
		"a sender from another address":          {cfg: httpapi.Config{Authorize: named}, change: func(r *http.Request) { r.Header.Set("Who", "bob"); r.RemoteAddr = "192.0.2.1:1" }, want: 200},
		"a change by a viewer":                   {cfg: httpapi.Config{Authorize: named}, method: http.MethodPost, target: "/api/parked/rearm", change: func(r *http.Request) { r.Header.Set("Who", "bob") }, want: 403},
		"a change to a read-only handler":        {cfg: httpapi.Config{ReadOnly: true}, method: http.MethodPost, target: "/api/parked/rearm", want: 403},
		"a sender without rights":                {cfg: httpapi.Config{Authorize: entitled(0)}, want: 403},
		"the same to a read-only handler":        {cfg: httpapi.Config{Authorize: entitled(0), ReadOnly: true}, want: 403},
		"a scan where one may run at a time":     {cfg: httpapi.Config{MaxScans: 1}, target: "/api/parked", want: 200},
		"an unknown sender with a challenge":     {cfg: httpapi.Config{Authorize: named, Challenge: "Bearer"}, want: 401},
		"a form instead of JSON":                 {method: http.MethodPost, target: "/api/parked/rearm", change: func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }, want: 415},
		"a page of the same origin":              {method: http.MethodPost, target: "/api/parked/rearm", change: func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, want: 422},
		"a query above the limit":                {target: "/api/parked?text=" + strings.Repeat("x", 16<<10-len("text=")+1), want: 414},
		"a query at the limit":                   {target: "/api/parked?text=" + strings.Repeat("x", 16<<10-len("text=")), want: 200},
		"a name above the limit":                 {cfg: httpapi.Config{Authorize: nameOf(257)}, want: 403},
		"a name at the limit":                    {cfg: httpapi.Config{Authorize: nameOf(256)}, want: 200},
		"a malformed query":                      {target: "/api/parked?%zz", want: 400},
		"an unknown parameter":                   {target: "/api/parked?classs=x", want: 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.cfg.Logger = slog.New(slog.DiscardHandler)
			_, h := handler(t, client, c.cfg)
			if c.method == "" {
				c.method = http.MethodGet
			}
			if c.target == "" {
				c.target = "/api/stats"
			}
			r := asked(t, c.method, c.target, "{}")
			if c.change != nil {
				c.change(r)
			}
			w := answer(h, r)
			if w.Code != c.want {
				t.Fatalf("status %d, want %d: %s", w.Code, c.want, w.Body)
			}
			if w.Code >= 400 {
				problem(t, w)
			}
			for header, want := range map[string]string{
				"Content-Security-Policy": "default-src 'none'; script-src 'self'; ", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
				"Referrer-Policy": "no-referrer",
			} {
				if got := w.Header().Get(header); !strings.HasPrefix(got, want) {
					t.Errorf("%s: %q", header, got)
				}
			}
			if allowed := map[string]string{"/api/stats": "GET, HEAD", "/api/parked/rearm": "POST"}[c.target]; w.Code == 405 && w.Header().Get("Allow") != allowed || w.Code == 401 && !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), cmp.Or(c.cfg.Challenge, "Basic")) {
				t.Errorf("header: %v", w.Header())
			}
		})
	}
}

// TestCrossSitePostsAreRejectedOnEveryRoute reads the routes from the handler, so that it covers new ones.
func TestCrossSitePostsAreRejectedOnEveryRoute(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	_, h := handler(t, client, httpapi.Config{Logger: slog.New(slog.DiscardHandler)})
	var commands counting
	client.AddHook(&commands)
	post := func(route, contentType, header, value string) *httptest.ResponseRecorder {
		r := asked(t, http.MethodPost, strings.ReplaceAll(route, "{id}", "x"), "")
		r.Header.Set("Content-Type", contentType)
		r.Header.Set(header, value)
		return answer(h, r)
	}
	const refusal = "the request comes from a page of another origin"
	types := map[string]string{} // content type by route
	for contentType, routes := range map[string]map[string]httpapi.Access{
		"application/x-www-form-urlencoded": pagesOf(t, h), "application/json": h.Routes(),
	} {
		for name := range routes {
			if route, isPost := strings.CutPrefix(name, "POST "); isPost {
				types[route] = contentType
			}
		}
	}
	if len(types) < 18 {
		t.Errorf("the handler has only %d routes for POST", len(types))
	}
	for route, contentType := range types {
		for header, values := range map[string][]string{"Sec-Fetch-Site": {"cross-site", "same-site"}, "Origin": {"http://evil.example", "null"}} {
			for _, value := range values {
				if reply := post(route, contentType, header, value); reply.Code != http.StatusForbidden || !strings.Contains(reply.Body.String(), refusal) {
					t.Errorf("POST %s with %s: %s: status %d, want 403", route, header, value, reply.Code)
				}
			}
		}
	}
	if n := commands.all.Load(); n != 0 {
		t.Errorf("the rejected requests sent %d commands", n)
	}
	for route, contentType := range types {
		if reply := post(route, contentType, "Sec-Fetch-Site", "same-origin"); strings.Contains(reply.Body.String(), refusal) {
			t.Errorf("POST %s rejects a page of the handler: %s", route, reply.Body)
		}
	}
}

// slow is a body that arrives byte by byte and never ends.
type slow struct{ ctx context.Context }

func (s slow) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, context.Cause(s.ctx)
}

// TestConnectionStaysOpenForTheRestOfABodyAfterAnEarlyReply checks that a client that is sending a body that nobody reads can
// go on for a moment. A connection that is closed at once is reset, which can cost the client the reply.
func TestConnectionStaysOpenForTheRestOfABodyAfterAnEarlyReply(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	_, h := handler(t, client, httpapi.Config{})
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	conn, err := (&net.Dialer{}).DialContext(redistest.Soon(t), "tcp", server.Listener.Addr().String())
	redistest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	redistest.Must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	began := time.Now()
	_, err = fmt.Fprintf(conn, "POST /api/fix?%s HTTP/1.1\r\nHost: admin\r\nContent-Length: 10\r\n\r\n", strings.Repeat("q", 20_000))
	redistest.Must(t, err)
	reply, err := io.ReadAll(conn)
	redistest.Must(t, err)
	if !strings.HasPrefix(string(reply), "HTTP/1.1 414 ") {
		t.Errorf("reply %.100q", reply)
	}
	if open := time.Since(began); open < 250*time.Millisecond {
		t.Errorf("the connection was open for %v", open)
	}
}

func TestLargeAndSlowBodiesAreRejected(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	_, h := handler(t, client, httpapi.Config{Timeout: 50 * time.Millisecond})
	if w := answer(h, asked(t, http.MethodPost, "/api/fix", `{"slots":[`+strings.Repeat(" ", 1<<20)+"]}")); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: %d %s", w.Code, w.Body)
	}
	unread := httptest.NewRequest(http.MethodPost, "/api/fix?"+strings.Repeat("q", 1<<20), slow{t.Context()})
	if w := answer(h, unread); w.Code != http.StatusRequestURITooLong || w.Header().Get("Connection") != "close" {
		t.Errorf("unread body: %d %v", w.Code, w.Header())
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(redistest.Soon(t), http.MethodPost, server.URL+"/api/fix", slow{t.Context()})
	redistest.Must(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = 10
	reply, err := server.Client().Do(r)
	redistest.Must(t, err)
	defer reply.Body.Close() //nolint:errcheck // it was only read
	if text, _ := io.ReadAll(reply.Body); reply.StatusCode != http.StatusRequestTimeout {
		t.Errorf("a slow body: %d %s", reply.StatusCode, text)
	}
}

func TestHandlerWorksUnderAnyPrefix(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	_, h := handler(t, client, httpapi.Config{})
	mux := http.NewServeMux()
	mux.Handle("/ops/luatx/", http.StripPrefix("/ops/luatx", h))
	mux.Handle("/ops/luatx", http.StripPrefix("/ops/luatx", h))
	mux.Handle("/other/", http.StripPrefix("/other/", h))
	for target, want := range map[string]int{
		"/ops/luatx/api/stats": 200, "/other/api/stats": 200, "/ops/luatx/api/none": 404, "/ops/luatx": 303, "/ops/luatx?x": 303,
	} {
		w := answer(mux, asked(t, http.MethodGet, target, ""))
		if w.Code != want {
			t.Errorf("%s: %d, want %d: %s", target, w.Code, want, w.Body)
		}
		if got := w.Header().Get("Location"); want == 303 && got != "./luatx/" {
			t.Errorf("%s leads to %q", target, got)
		}
	}
	redistest.Must(t, fixUnder(t, mux))
}

// fixUnder starts an operation under a prefix and follows its location.
func fixUnder(t *testing.T, mux http.Handler) error {
	t.Helper()
	w := answer(mux, asked(t, http.MethodPost, "/ops/luatx/api/fix", "{}"))
	var o struct{ ID string }
	if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil || w.Code != http.StatusAccepted {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if got := w.Header().Get("Location"); got != "../api/operations/"+o.ID {
		t.Errorf("location %q", got)
	}
	if w := answer(mux, asked(t, http.MethodGet, "/ops/luatx/api/operations/"+o.ID, "")); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	return nil
}

// entitled returns an authorizer of senders with a right.
func entitled(to httpapi.Access) func(*http.Request) (httpapi.Identity, error) {
	return func(*http.Request) (httpapi.Identity, error) {
		return httpapi.Identity{Name: "bob", May: to, Payloads: true}, nil
	}
}

// nameOf returns an authorizer with a name of n bytes.
func nameOf(n int) func(*http.Request) (httpapi.Identity, error) {
	return func(*http.Request) (httpapi.Identity, error) {
		return httpapi.Identity{Name: strings.Repeat("n", n), May: httpapi.MayView}, nil
	}
}

func TestTokenIdentifiesItsOwnerAsBearerOrPassword(t *testing.T) {
	t.Parallel()
	for _, bad := range []map[string]httpapi.Identity{nil, {"0123456789abcde": {Name: "a"}}} {
		if _, err := httpapi.Tokens(bad); err == nil {
			t.Errorf("Tokens accepts %v", bad)
		}
	}
	authorize, err := httpapi.Tokens(map[string]httpapi.Identity{
		"0123456789abcdef": {Name: "alice", May: httpapi.MayPurge},
		"fedcba9876543210": {Name: "bob", May: httpapi.MayView},
	})
	redistest.Must(t, err)
	for header, want := range map[string]string{
		"Bearer 0123456789abcdef": "alice", "Bearer fedcba9876543210": "bob", "Bearer 0123456789abcdeg": "", "Bearer ": "", "": "", "0123456789abcdef": "",
		"Basic eDowMTIzNDU2Nzg5YWJjZGVm": "alice", "Basic eDow": "", "Basic !": "",
	} {
		r := asked(t, http.MethodGet, "/", "")
		r.Header.Set("Authorization", header)
		who, err := authorize(r)
		if who.Name != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, httpapi.ErrUnknown) {
			t.Errorf("%q: %+v, %v", header, who, err)
		}
	}
	if !slices.IsSorted([]httpapi.Access{httpapi.MayNothing, httpapi.MayView, httpapi.MayRetry, httpapi.MayPurge}) {
		t.Error("a higher right does not include a lower one")
	}
}
