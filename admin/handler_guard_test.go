package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/internal/redistest"
)

// handler is a handler of a service of its own on the server.
func handler(t testing.TB, client redis.UniversalClient, cfg admin.HandlerConfig) (*luatx.Transactor, *admin.Handler) {
	t.Helper()
	tr, op := service(t, client, 4)
	if cfg.Authorize == nil {
		cfg.Authorize = everybody
	}
	h, err := admin.NewHandler(op, cfg)
	must(t, err)
	t.Cleanup(h.Close)
	return tr, h
}

// asked is a request from this machine.
func asked(t testing.TB, method, target, body string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	r.RemoteAddr, r.Host = "127.0.0.1:1234", "localhost:8080"
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// answer is what a handler says.
func answer(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// problem reads a problem, which is one in all that it says.
func problem(t testing.TB, w *httptest.ResponseRecorder) (p struct {
	Title, Detail string
	Status        int
},
) {
	t.Helper()
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("status %d is of type %q: %s", w.Code, got, w.Body)
	}
	must(t, json.Unmarshal(w.Body.Bytes(), &p))
	if p.Status != w.Code || p.Title == "" {
		t.Errorf("status %d: %+v", w.Code, p)
	}
	return p
}

// TestGuards holds who is refused, and how.
func TestGuards(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	named := func(r *http.Request) (admin.Identity, error) {
		switch who := r.Header.Get("Who"); who {
		case "":
			return admin.Identity{}, admin.ErrUnknown
		case "mallory":
			return admin.Identity{Name: "mallory", May: admin.MayPurge}, errors.New("not today")
		case "nobody":
			return admin.Identity{May: admin.MayPurge}, nil
		default:
			return admin.Identity{Name: who, May: admin.MayView}, nil
		}
	}
	for name, c := range map[string]struct {
		cfg            admin.HandlerConfig
		method, target string
		change         func(*http.Request)
		want           int
	}{
		"somebody":                    {want: 200},
		"a probe":                     {target: "/readyz", want: 200},
		"an open probe":               {cfg: admin.HandlerConfig{Authorize: named}, target: "/livez", change: func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" }, want: 200},
		"nothing there":               {target: "/api/none", want: 404},
		"outside":                     {target: "/api/../livez", want: 404},
		"nothing there for strangers": {cfg: admin.HandlerConfig{Authorize: named}, target: "/api/none", want: 401},
		"a wrong method":              {method: http.MethodPut, want: 405},
		"a change by GET":             {target: "/api/parked/rearm", want: 405},
		"HEAD":                        {method: http.MethodHead, want: 200},
		"OPTIONS":                     {method: http.MethodOptions, want: 405},
		"nobody known":                {cfg: admin.HandlerConfig{Authorize: named}, want: 401},
		"somebody refused":            {cfg: admin.HandlerConfig{Authorize: named}, change: func(r *http.Request) { r.Header.Set("Who", "mallory") }, want: 403},
		"somebody without a name":     {cfg: admin.HandlerConfig{Authorize: named}, change: func(r *http.Request) { r.Header.Set("Who", "nobody") }, want: 403},
		"somebody from elsewhere":     {cfg: admin.HandlerConfig{Authorize: named}, change: func(r *http.Request) { r.Header.Set("Who", "bob"); r.RemoteAddr = "192.0.2.1:1" }, want: 200},
		"more than one may":           {cfg: admin.HandlerConfig{Authorize: named}, method: http.MethodPost, target: "/api/parked/rearm", change: func(r *http.Request) { r.Header.Set("Who", "bob") }, want: 403},
		"read only":                   {cfg: admin.HandlerConfig{ReadOnly: true}, method: http.MethodPost, target: "/api/parked/rearm", want: 403},
		"another site":                {method: http.MethodPost, target: "/api/parked/rearm", change: func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, want: 403},
		"another origin":              {method: http.MethodPost, target: "/api/parked/rearm", change: func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, want: 403},
		"a form":                      {method: http.MethodPost, target: "/api/parked/rearm", change: func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }, want: 415},
		"the same origin":             {method: http.MethodPost, target: "/api/parked/rearm", change: func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, want: 422},
		"a long query":                {target: "/api/parked?text=" + strings.Repeat("x", 17000), want: 414},
		"a query that is none":        {target: "/api/parked?%zz", want: 400},
		"a query not known":           {target: "/api/parked?classs=x", want: 400},
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
			if w.Code == 405 && w.Header().Get("Allow") == "" || w.Code == 401 && w.Header().Get("WWW-Authenticate") == "" {
				t.Errorf("header: %v", w.Header())
			}
		})
	}
}

// slow is a body that comes a byte at a time, and never ends.
type slow struct{ ctx context.Context }

func (s slow) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, context.Cause(s.ctx)
}

// TestRequestLimits holds that neither a large body nor a slow one is waited for.
func TestRequestLimits(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	_, h := handler(t, client, admin.HandlerConfig{BodyLimit: 100, Timeout: 50 * time.Millisecond})
	if w := answer(h, asked(t, http.MethodPost, "/api/fix", `{"slots":[`+strings.Repeat(" ", 100)+"]}")); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: %d %s", w.Code, w.Body)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(redistest.Soon(t), http.MethodPost, server.URL+"/api/fix", slow{t.Context()})
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = 10
	reply, err := server.Client().Do(r)
	must(t, err)
	defer reply.Body.Close() //nolint:errcheck // it was only read
	if text, _ := io.ReadAll(reply.Body); reply.StatusCode != http.StatusRequestTimeout {
		t.Errorf("a slow body: %d %s", reply.StatusCode, text)
	}
}

// TestMounted holds that the handler works under a prefix, however that is stripped, and finds the way to itself.
func TestMounted(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	_, h := handler(t, client, admin.HandlerConfig{})
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
	must(t, fixUnder(t, mux))
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

// TestTokens holds that a secret says who asks, however it comes, and nothing else does.
func TestTokens(t *testing.T) {
	t.Parallel()
	for _, bad := range [][]admin.Token{nil, {{Secret: "short", Identity: admin.Identity{Name: "a"}}}} {
		if _, err := admin.Tokens(bad...); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
	authorize, err := admin.Tokens(
		admin.Token{Secret: "0123456789abcdef", Identity: admin.Identity{Name: "alice", May: admin.MayPurge}},
		admin.Token{Secret: "fedcba9876543210", Identity: admin.Identity{Name: "bob", May: admin.MayView}},
	)
	must(t, err)
	for header, want := range map[string]string{
		"Bearer 0123456789abcdef": "alice", "Bearer fedcba9876543210": "bob", "Bearer 0123456789abcdeg": "", "Bearer ": "", "": "", "0123456789abcdef": "",
		"Basic eDowMTIzNDU2Nzg5YWJjZGVm": "alice", "Basic eDow": "", "Basic !": "",
	} {
		r := asked(t, http.MethodGet, "/", "")
		r.Header.Set("Authorization", header)
		who, err := authorize(r)
		if who.Name != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, admin.ErrUnknown) {
			t.Errorf("%q: %+v, %v", header, who, err)
		}
	}
	for _, a := range []admin.Access{admin.MayView, admin.MayRetry, admin.MayPurge} {
		if got, err := admin.ParseAccess(a.String()); got != a || err != nil {
			t.Errorf("%v: %v, %v", a, got, err)
		}
	}
	if _, err := admin.ParseAccess("nothing"); err == nil {
		t.Error("nothing is an access")
	}
	if !slices.IsSorted([]admin.Access{admin.MayNothing, admin.MayView, admin.MayRetry, admin.MayPurge}) {
		t.Error("who may more may less")
	}
}
