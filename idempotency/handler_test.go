package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/idempotency"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestHandlerThatViolatesARuleHasTheDocumentedEffect(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	for name, c := range map[string]struct {
		handler func(t *testing.T, tx *luatx.Tx, w http.ResponseWriter, r *http.Request)
		want    int
		detail  string
	}{
		"writes elsewhere": {func(_ *testing.T, tx *luatx.Tx, _ http.ResponseWriter, r *http.Request) {
			tx.Pipeline().Set(r.Context(), "elsewhere", 1, 0)
		}, http.StatusInternalServerError, "cannot be applied"},
		"a command that fails": {func(t *testing.T, tx *luatx.Tx, _ http.ResponseWriter, r *http.Request) {
			key, err := tx.Key("list")
			redistest.Must(t, err)
			tx.Pipeline().RPush(r.Context(), key, 1)
			tx.Pipeline().Incr(r.Context(), key)
		}, http.StatusInternalServerError, "cannot be applied"},
		"a procedure that aborts": {func(t *testing.T, tx *luatx.Tx, _ http.ResponseWriter, _ *http.Request) {
			key, err := tx.Key("x")
			redistest.Must(t, err)
			tx.Call("refuse", []string{key})
		}, http.StatusConflict, "no money"},
		"a long answer": {func(t *testing.T, _ *luatx.Tx, w http.ResponseWriter, _ *http.Request) {
			if n, err := w.Write(make([]byte, 101)); n != 0 || err == nil {
				t.Errorf("%d bytes were taken, %v", n, err)
			}
		}, http.StatusInternalServerError, "cannot be applied"},
		"an answer that is long in pieces": {func(t *testing.T, _ *luatx.Tx, w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(make([]byte, 60))
			redistest.Must(t, err)
			if n, err := w.Write(make([]byte, 60)); n != 0 || err == nil {
				t.Errorf("%d bytes were taken, %v", n, err)
			}
		}, http.StatusInternalServerError, "cannot be applied"},
		"two statuses": {func(_ *testing.T, _ *luatx.Tx, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			w.WriteHeader(http.StatusInternalServerError)
		}, http.StatusAccepted, ""},
		"a status after an informational one": {func(_ *testing.T, _ *luatx.Tx, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusAccepted)
		}, http.StatusAccepted, ""},
		"the longest answer": {func(t *testing.T, _ *luatx.Tx, w http.ResponseWriter, _ *http.Request) {
			_, err := fmt.Fprintf(w, "%100d", 7)
			redistest.Must(t, err)
		}, http.StatusOK, fmt.Sprintf("%100d", 7)},
		"no answer": {func(*testing.T, *luatx.Tx, http.ResponseWriter, *http.Request) {}, http.StatusOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, client)
			s.serve(func(w http.ResponseWriter, r *http.Request) {
				tx, _ := luatx.TxFromContext(r.Context())
				c.handler(t, tx, w, r)
			}, func(cfg *idempotency.Config) { cfg.MaxResponse = 100 })
			s.want(s.post("k", "1"), c.want, false, c.detail)
		})
	}
}

// TestHandlerThatRunsAgainGetsTheWholeRequest changes what the handler has read, so that its first run does not commit.
func TestHandlerThatRunsAgainGetsTheWholeRequest(t *testing.T) {
	t.Parallel()
	s := newService(t, redistest.Shared(t).Client(t))
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		tx, _ := luatx.TxFromContext(r.Context())
		price, err := tx.Key("price")
		redistest.Must(t, err)
		found, _ := tx.Read().Get(r.Context(), price).Int()
		if s.runs.Load() == 0 {
			redistest.Must(t, s.client.Set(redistest.Soon(t), price, 7, 0).Err())
			w.Header().Set("X-First", "is not sent")
		}
		s.pay(w, r)
		fmt.Fprintf(w, " for %d", found)
	})
	r := s.post("k", "123")
	s.want(r, http.StatusCreated, false, "run 2 for 7")
	if first := r.Header().Get("X-First"); first != "" {
		t.Errorf("a header that %s", first)
	}
	if n := s.sum(); n != 3 {
		t.Errorf("the sum is %d, want 3", n)
	}
	s.want(s.post("k", "123"), http.StatusCreated, true, "run 2 for 7")
}

func TestHeadersSetAfterTheFirstByteAreIgnored(t *testing.T) {
	t.Parallel()
	s := newService(t, redistest.Shared(t).Client(t))
	s.serve(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "here")
		w.Header().Set("X-Late", "is not sent")
	})
	r := s.post("k", "1")
	s.want(r, http.StatusOK, false, "here")
	if late := r.Header().Get("X-Late"); late != "" {
		t.Errorf("a header that %s", late)
	}
}

func TestUnreadableStoredResponseIsAnErrorAndHandlerDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	for name, spoil := range map[string]func(ctx context.Context, key string) error{
		"no JSON": func(ctx context.Context, key string) error { return client.Set(ctx, key, "{", 0).Err() },
		"no text": func(ctx context.Context, key string) error {
			return errors.Join(client.Del(ctx, key).Err(), client.RPush(ctx, key, "x").Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, client)
			s.want(s.post("k", "12"), http.StatusCreated, false, "run 1")
			redistest.Must(t, spoil(redistest.Soon(t), keptKey(t, s)))
			r := s.post("k", "12")
			s.want(r, http.StatusConflict, false, "applied before")
			if runs := s.runs.Load(); runs != 1 || r.Header().Get("Retry-After") != "" {
				t.Errorf("%d runs, %v", runs, r.Header())
			}
		})
	}
}

func TestRequestIsNotCommittedIfItsStoredResponseCannotBeRead(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	first := newService(t, client)
	first.want(first.post("k", "12"), http.StatusCreated, false, "run 1")
	pattern, err := first.tr.Keyspace().Key("a", "idempotency", "x")
	redistest.Must(t, err)
	id := strings.TrimPrefix(keptKey(t, first), strings.TrimSuffix(pattern, "x"))
	for name, spoil := range map[string]func(ctx context.Context, key string) error{
		"no JSON": func(ctx context.Context, key string) error { return client.Set(ctx, key, "{", time.Minute).Err() },
		"no text": func(ctx context.Context, key string) error { return client.RPush(ctx, key, "x").Err() },
	} {
		s := newService(t, client)
		key, err := s.tr.Keyspace().Key("a", "idempotency", id)
		redistest.Must(t, errors.Join(err, spoil(redistest.Soon(t), key)))
		s.want(s.post("k", "12"), http.StatusServiceUnavailable, false, "send the same request again")
		if runs := s.runs.Load(); runs != 0 || s.sum() != 0 {
			t.Errorf("%s: %d runs, the sum is %d", name, runs, s.sum())
		}
	}
}

func TestPanicReachesTheServerAndWritesNothing(t *testing.T) {
	t.Parallel()
	s := newService(t, redistest.Shared(t).Client(t))
	pay := s.handler
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		s.pay(w, r)
		panic(http.ErrAbortHandler)
	})
	func() {
		defer func() {
			if v := recover(); v != any(http.ErrAbortHandler) {
				t.Errorf("recovered %v", v)
			}
		}()
		s.post("k", "12")
	}()
	s.handler = pay
	s.want(s.post("k", "12"), http.StatusCreated, false, "run 2")
	if n := s.sum(); n != 2 {
		t.Errorf("the sum is %d", n)
	}
}

func TestRequestWithAnEvictedResponseIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := newService(t, redistest.Shared(t).Client(t))
	s.want(s.post("k", "12"), http.StatusCreated, false, "run 1")
	redistest.Must(t, s.client.Del(redistest.Soon(t), keptKey(t, s)).Err())
	s.want(s.post("k", "12"), http.StatusConflict, false, "applied before")
	if n, runs := s.sum(), s.runs.Load(); n != 2 || runs != 3 {
		t.Errorf("the sum is %d after %d runs, want 2 after one and two attempts", n, runs)
	}
}
