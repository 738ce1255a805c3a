package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/idempotency"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// service books payments: each one adds to the sum of an account and emits an event.
type service struct {
	t       *testing.T
	tr      *luatx.Transactor
	client  redis.UniversalClient
	handler http.Handler
	runs    atomic.Int64
	status  atomic.Int64
}

func newService(t *testing.T, client redis.UniversalClient, change ...func(*idempotency.Config)) *service {
	t.Helper()
	namespace := redistest.Namespace(t)
	tr, err := luatx.New(client, luatx.Config{
		Namespace: namespace, Keyspace: luatx.Partitions(4).WithPrefix(namespace), Retention: 12 * time.Hour,
		Procedures: []luatx.Procedure{{Name: "refuse", Source: `return abort('no money')`}},
	})
	redistest.Must(t, err)
	s := &service{t: t, tr: tr, client: client}
	s.status.Store(http.StatusCreated)
	s.serve(s.pay, change...)
	return s
}

// serve replaces the handler of the service.
func (s *service) serve(handler http.HandlerFunc, change ...func(*idempotency.Config)) {
	s.t.Helper()
	cfg := idempotency.Config{Aggregate: account, Scope: anybody}
	for _, f := range change {
		f(&cfg)
	}
	once, err := idempotency.New(s.tr, cfg)
	redistest.Must(s.t, err)
	s.handler = once(handler)
}

// anybody is the scope of services whose clients share their responses.
func anybody(*http.Request) string { return "anybody" }

func account(r *http.Request) (string, error) {
	if a := r.URL.Query().Get("account"); a != "" {
		return a, nil
	}
	return "", errors.New("name an account")
}

func (s *service) pay(w http.ResponseWriter, r *http.Request) {
	run := s.runs.Add(1)
	ctx := r.Context()
	amount, err := io.ReadAll(r.Body)
	redistest.Must(s.t, err)
	tx, ok := luatx.TxFromContext(ctx)
	if !ok {
		s.t.Error("no transaction")
		return
	}
	key, err := tx.Key("sum")
	redistest.Must(s.t, err)
	luatx.CmdableFromContext(ctx, s.client).IncrBy(ctx, key, int64(len(amount)))
	redistest.Must(s.t, tx.Emit(luatx.Event{Body: []byte(`{"id":"e"}`)}))
	w.Header().Set("X-Run", fmt.Sprint(run))
	w.WriteHeader(int(s.status.Load()))
	w.Header().Set("X-Late", "is not sent")
	fmt.Fprintf(w, "run %d", run)
}

func (s *service) sum() int {
	s.t.Helper()
	key, err := s.tr.Keyspace().Key("a", "sum")
	redistest.Must(s.t, err)
	n, err := s.client.Get(redistest.Soon(s.t), key).Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatal(err)
	}
	return n
}

// post sends a payment, whose amount is the length of its body.
func (s *service) post(key, body string) *httptest.ResponseRecorder {
	return s.send("POST", "/pay?account=a", key, body)
}

func (s *service) send(method, target, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(redistest.Soon(s.t), method, target, strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

func (s *service) want(r *httptest.ResponseRecorder, status int, replayed bool, body string) {
	s.t.Helper()
	if r.Code != status || (r.Header().Get(idempotency.Replayed) == "true") != replayed || !strings.Contains(r.Body.String(), body) {
		s.t.Errorf("%d %q %v, want %d %q, replayed %t", r.Code, r.Body, r.Header(), status, body, replayed)
	}
}

func TestRepeatedRequestTakesEffectOnce(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s := newService(t, client)
		first := s.post("k1", "12345")
		if first.Header().Get("X-Run") != "1" || first.Header().Get("X-Late") != "" {
			t.Errorf("%v", first.Header())
		}
		s.want(first, http.StatusCreated, false, "run 1")
		for range 3 {
			again := s.post("k1", "12345")
			if again.Header().Get("X-Run") != "1" {
				t.Errorf("%v", again.Header())
			}
			s.want(again, http.StatusCreated, true, "run 1")
		}
		s.want(s.post(`"k1"`, "12345"), http.StatusCreated, true, "run 1") // quoted, as in the draft
		s.want(s.post("k2", "123"), http.StatusCreated, false, "run 2")
		if n := s.sum(); n != 8 {
			t.Errorf("the sum is %d, want 8", n)
		}
		ttl := client.PTTL(redistest.Soon(t), keptKey(t, s)).Val()
		if ttl <= 11*time.Hour || ttl > 12*time.Hour {
			t.Errorf("the answer is kept for %v", ttl)
		}
	})
}

// keptKey returns the key of a stored response.
func keptKey(t testing.TB, s *service) string {
	t.Helper()
	pattern, err := s.tr.Keyspace().Key("a", "idempotency", "x")
	redistest.Must(t, err)
	var found []string
	scan := func(client redis.UniversalClient) {
		iter := client.Scan(redistest.Soon(t), 0, strings.TrimSuffix(pattern, "x")+"*", 1000).Iterator()
		for iter.Next(redistest.Soon(t)) {
			found = append(found, iter.Val())
		}
	}
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(redistest.Soon(t), pattern)
		redistest.Must(t, err)
		scan(master)
	} else {
		scan(s.client)
	}
	if len(found) == 0 {
		t.Fatal("nothing is kept")
	}
	return found[0]
}

func TestConcurrentCopiesTakeEffectOnceAndGetOneResponse(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s := newService(t, client)
		var fresh atomic.Int64
		bodies := sync.Map{}
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() {
				r := s.post("k", "1234567")
				if r.Header().Get(idempotency.Replayed) == "" {
					fresh.Add(1)
				}
				if r.Code != http.StatusCreated {
					t.Errorf("%d", r.Code)
				}
				bodies.Store(r.Body.String(), true)
			})
		}
		all.Wait()
		answers := 0
		bodies.Range(func(any, any) bool { answers++; return true })
		if s.sum() != 7 || fresh.Load() != 1 || answers != 1 {
			t.Errorf("sum %d, want 7; %d fresh answers of %d kinds, want 1 of 1", s.sum(), fresh.Load(), answers)
		}
	})
}

func TestInvalidAndConflictingRequestsAreRejected(t *testing.T) {
	t.Parallel()
	s := newService(t, redistest.Shared(t).Client(t), func(c *idempotency.Config) { c.MaxRequest = 10 })
	s.want(s.post("k", "12345"), http.StatusCreated, false, "run 1")
	for name, c := range map[string]struct {
		method, target, key, body string
		want                      int
	}{
		"no key":            {"POST", "/pay?account=a", "", "12345", http.StatusBadRequest},
		"a long key":        {"POST", "/pay?account=a", strings.Repeat("k", 256), "12345", http.StatusBadRequest},
		"a key of others":   {"POST", "/pay?account=a", "schlüssel", "12345", http.StatusBadRequest},
		"a key with a tab":  {"POST", "/pay?account=a", "a\tb", "12345", http.StatusBadRequest},
		"an empty key":      {"POST", "/pay?account=a", `""`, "12345", http.StatusBadRequest},
		"no account":        {"POST", "/pay", "k3", "12345", http.StatusBadRequest},
		"a long account":    {"POST", "/pay?account=" + strings.Repeat("a", 257), "k3", "12345", http.StatusBadRequest},
		"a large body":      {"POST", "/pay?account=a", "k3", "12345678901", http.StatusRequestEntityTooLarge},
		"another body":      {"POST", "/pay?account=a", "k", "54321", http.StatusUnprocessableEntity},
		"another method":    {"PATCH", "/pay?account=a", "k", "12345", http.StatusUnprocessableEntity},
		"another address":   {"POST", "/pay?account=a&x=1", "k", "12345", http.StatusUnprocessableEntity},
		"the key of others": {"DELETE", "/pay?account=a", "k", "", http.StatusUnprocessableEntity},
	} {
		r := s.send(c.method, c.target, c.key, c.body)
		if body := r.Body.String(); r.Code != c.want || r.Header().Get("Content-Type") != "application/problem+json" || !strings.Contains(body, fmt.Sprint(c.want)) {
			t.Errorf("%s: %d %q, want %d", name, r.Code, body, c.want)
		}
	}
	if s.runs.Load() != 1 || s.sum() != 5 {
		t.Errorf("%d runs, sum %d", s.runs.Load(), s.sum())
	}
	s.want(s.post("the largest body", "1234567890"), http.StatusCreated, false, "run 2")
	for i, key := range []string{strings.Repeat("k", 255), " ~", `"`, `a"`, `"a`} {
		s.want(s.post(key, "12345"), http.StatusCreated, false, fmt.Sprint("run ", i+3))
	}
	s.want(s.post("a", "12345"), http.StatusCreated, false, "run 8")
	s.want(s.post(`"a"`, "12345"), http.StatusCreated, true, "run 8") // quoted, as in the draft
}

func TestServerErrorStoresNothingAndFreesTheKey(t *testing.T) {
	t.Parallel()
	s := newService(t, redistest.Shared(t).Client(t))
	s.status.Store(http.StatusInternalServerError)
	s.want(s.post("k", "12345"), http.StatusInternalServerError, false, "run 1")
	if n := s.sum(); n != 0 {
		t.Errorf("the sum is %d", n)
	}
	s.status.Store(http.StatusConflict)
	s.want(s.post("k", "12345"), http.StatusConflict, false, "run 2")
	s.want(s.post("k", "12345"), http.StatusConflict, true, "run 2")
}

func TestRequestWithoutAnOptionalKeyRunsEachTime(t *testing.T) {
	t.Parallel()
	s := newService(t, redistest.Shared(t).Client(t), func(c *idempotency.Config) { c.KeyOptional = true })
	for n := range 2 {
		s.want(s.post("", "12"), http.StatusCreated, false, fmt.Sprint("run ", n+1))
	}
	if n := s.sum(); n != 4 {
		t.Errorf("the sum is %d", n)
	}
	for _, replayed := range []bool{false, true} {
		s.want(s.post("k", "12"), http.StatusCreated, replayed, "run 3")
	}
	s.want(s.post(`""`, "12"), http.StatusBadRequest, false, "printable ASCII")
}

func TestKeyIsReadFromTheConfiguredHeaderAlone(t *testing.T) {
	t.Parallel()
	for _, optional := range []bool{false, true} {
		s := newService(t, redistest.Shared(t).Client(t), func(c *idempotency.Config) { c.Header, c.KeyOptional = "X-Request-Key", optional })
		send := func(keys ...string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(redistest.Soon(t), "POST", "/pay?account=a", strings.NewReader("12"))
			r.Header.Set("Idempotency-Key", "other")
			for _, key := range keys {
				r.Header.Add("x-request-key", key)
			}
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, r)
			return w
		}
		s.want(send("k"), http.StatusCreated, false, "run 1")
		s.want(send("k"), http.StatusCreated, true, "run 1")
		s.want(send("k", "k"), http.StatusBadRequest, false, "X-Request-Key must be there once, and is 2 times")
		if !optional {
			s.want(send(), http.StatusBadRequest, false, "X-Request-Key must be there once, and is 0 times")
		}
	}
}

// broken is a body whose connection ends after its text.
type broken struct{ *strings.Reader }

func (b broken) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func TestRequestWhoseBodyEndsEarlyIsNotApplied(t *testing.T) {
	t.Parallel()
	s := newService(t, redistest.Shared(t).Client(t))
	r := httptest.NewRequestWithContext(redistest.Soon(t), "POST", "/pay?account=a", broken{strings.NewReader("12")})
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	s.want(w, http.StatusBadRequest, false, "ended early")
	s.want(s.post("k", "12345"), http.StatusCreated, false, "run 1")
}

func TestKeysOfDifferentScopesAreIndependent(t *testing.T) {
	t.Parallel()
	tenant := "ann"
	s := newService(t, redistest.Shared(t).Client(t), func(c *idempotency.Config) {
		c.Scope = func(*http.Request) string { return tenant }
	})
	s.want(s.post("bk", "12"), http.StatusCreated, false, "run 1")
	tenant = "annb" // the same characters, split differently
	s.want(s.post("k", "12"), http.StatusCreated, false, "run 2")
	s.want(s.send("POST", "/pay?account=a&x=1", "m", "23"), http.StatusCreated, false, "run 3")
	s.want(s.send("POST", "/pay?account=a&x=12", "m", "3"), http.StatusUnprocessableEntity, false, "another request")
	tenant = "bob" // the same key
	s.want(s.post("bk", "12"), http.StatusCreated, false, "run 4")
	tenant = "ann"
	s.want(s.post("bk", "12"), http.StatusCreated, true, "run 1")
}

func TestRequestsWithoutPrincipalAreRejected(t *testing.T) {
	t.Parallel()
	s := newService(t, redistest.Shared(t).Client(t), func(c *idempotency.Config) {
		c.Scope = func(*http.Request) string { return "" }
	})
	s.want(s.post("k", "12"), http.StatusForbidden, false, "authenticate first")
	if s.runs.Load() != 0 {
		t.Error("the handler ran")
	}
}

func TestTemporaryStatusesCommitNothingAndAreNotStored(t *testing.T) {
	t.Parallel()
	for _, status := range []int{
		http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusNotImplemented, http.StatusServiceUnavailable, 599,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			s := newService(t, redistest.Shared(t).Client(t))
			s.status.Store(int64(status))
			s.want(s.post("k", "12345"), status, false, "run 1")
			if n := s.sum(); n != 0 {
				t.Errorf("the sum is %d, want 0", n)
			}
			s.status.Store(http.StatusCreated)
			s.want(s.post("k", "12345"), http.StatusCreated, false, "run 2")
			s.want(s.post("k", "12345"), http.StatusCreated, true, "run 2")
		})
	}
}

func TestSetCookieIsNotStored(t *testing.T) {
	t.Parallel()
	s := newService(t, redistest.Shared(t).Client(t))
	s.serve(func(w http.ResponseWriter, _ *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "secret"})
		w.Header()["set-cookie"] = []string{"token=secret"}
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(http.StatusCreated)
	})
	first := s.post("k", "12")
	s.want(first, http.StatusCreated, false, "")
	if first.Header().Get("Set-Cookie") == "" {
		t.Errorf("the first answer has no cookie: %v", first.Header())
	}
	again := s.post("k", "12")
	s.want(again, http.StatusCreated, true, "")
	if again.Header().Get("Location") != "/payments/1" {
		t.Errorf("the replayed answer has no Location: %v", again.Header())
	}
	if kept := s.client.Get(redistest.Soon(t), keptKey(t, s)).Val(); strings.Contains(kept, "secret") || strings.Contains(fmt.Sprint(again.Header()), "secret") {
		t.Errorf("the cookie is kept as %s and sent again as %v", kept, again.Header())
	}
}

// TestRepeatedRequestsPayOncePerKeyIfRepliesAreLost drops requests and replies.
func TestRepeatedRequestsPayOncePerKeyIfRepliesAreLost(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.Proxy(t, server.Addr())
	s := newService(t, redistest.Client(t, proxy.Addr(), func(o *redis.Options) { o.ReadTimeout = time.Second }))
	stop := proxy.Chaos(respproxy.Chaos{DropRequest: 0.1, DropReply: 0.1, Seed: 7})
	defer stop()
	for k := range 20 {
		for {
			r := s.post(fmt.Sprint("k", k), "123")
			if r.Code == http.StatusCreated {
				break
			}
			if r.Code != http.StatusServiceUnavailable {
				t.Fatalf("%d %q", r.Code, r.Body.String())
			}
		}
	}
	stop()
	if n := s.sum(); n != 60 {
		t.Errorf("the sum is %d, want 60", n)
	}
}

func TestUncommittedRequestCanBeRepeated(t *testing.T) {
	t.Parallel()
	logs := &rig.Lines{}
	s := newService(t, redistest.Shared(t).Client(t), func(c *idempotency.Config) { c.Logger = logs.Logger() })
	r := httptest.NewRequest("POST", "/pay?account=a", strings.NewReader("12"))
	r.Header.Set("Idempotency-Key", "k")
	gone, leave := context.WithCancel(t.Context())
	leave()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r.WithContext(gone))
	s.want(w, http.StatusServiceUnavailable, false, "send the same request again")
	if n := logs.Count("method=POST path=/pay status=503 error="); n != 1 || w.Header().Get("Retry-After") != "1" {
		t.Errorf("%v, logged:\n%s", w.Header(), logs)
	}
	if again := s.post("k", "12"); again.Code != http.StatusCreated {
		t.Errorf("%d %s", again.Code, again.Body)
	}
}

func TestSafeMethodsNeedNoKey(t *testing.T) {
	t.Parallel()
	s := newService(t, redistest.Shared(t).Client(t))
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := luatx.TxFromContext(r.Context()); ok {
			t.Error("a transaction")
		}
		fmt.Fprint(w, "here")
	})
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE"} {
		s.want(s.send(method, "/", "", ""), http.StatusOK, false, "here")
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		s.want(s.send(method, "/pay?account=a", "", ""), http.StatusBadRequest, false, "must be there once")
	}
}

func TestNewRejectsInvalidConfig(t *testing.T) {
	t.Parallel()
	s := newService(t, redistest.Shared(t).Client(t))
	for name, c := range map[string]struct {
		tr  *luatx.Transactor
		cfg idempotency.Config
	}{
		"Transactor":  {nil, idempotency.Config{Aggregate: account, Scope: anybody}},
		"Aggregate":   {s.tr, idempotency.Config{Scope: anybody}},
		"Scope":       {s.tr, idempotency.Config{Aggregate: account}},
		"MaxRequest":  {s.tr, idempotency.Config{Aggregate: account, Scope: anybody, MaxRequest: -1}},
		"MaxResponse": {s.tr, idempotency.Config{Aggregate: account, Scope: anybody, MaxResponse: -1}},
	} {
		if _, err := idempotency.New(c.tr, c.cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOneKeyCountsOnceForEachAggregate(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s := newService(t, client)
		for i := range 50 {
			target := fmt.Sprint("/pay?account=", i)
			s.want(s.send("POST", target, "k1", "12345"), http.StatusCreated, false, "run")
			s.want(s.send("POST", target, "k1", "12345"), http.StatusCreated, true, "run")
		}
		if runs := s.runs.Load(); runs != 50 {
			t.Errorf("%d runs, want 50", runs)
		}
	})
}
