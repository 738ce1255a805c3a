package relay_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/relay/cehttp"
)

// hanging blocks events whose ids begin with "stuck" until the test ends, even after their context ends.
type hanging struct {
	*sink
	released chan struct{}
	release  func()
}

func newHanging(t testing.TB) *hanging {
	t.Helper()
	h := &hanging{sink: newSink(), released: make(chan struct{})}
	h.release = sync.OnceFunc(func() { close(h.released) })
	t.Cleanup(h.release)
	return h
}

func isStuck(e *message.RawMessage) bool { return strings.HasPrefix(e.ID(), "stuck") }

func (h *hanging) Publish(ctx context.Context, events []*message.RawMessage) []error {
	errs := h.sink.Publish(ctx, events)
	if slices.ContainsFunc(events, isStuck) {
		<-h.released
	}
	return errs
}

func (h *hanging) one(ctx context.Context, event *message.RawMessage) error {
	return h.Publish(ctx, []*message.RawMessage{event})[0]
}

// numbered returns n ids with a prefix.
func numbered(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(prefix, i)
	}
	return ids
}

func parked(t testing.TB, tr *luatx.Transactor, class string) (n int) {
	t.Helper()
	for _, err := range outbox.NewStore(tr).Parked(t.Context(), outbox.Filter{Class: class}) {
		redistest.Must(t, err)
		n++
	}
	return n
}

// impatient returns a Config that abandons calls within a fraction of a second and allows two attempts.
func impatient(log *rig.Lines) relay.Config {
	return relay.Config{
		Lease: 10 * time.Second, PublishTimeout: 100 * time.Millisecond, SweepInterval: 10 * time.Millisecond,
		BackoffBase: time.Millisecond, BackoffCap: 10 * time.Millisecond,
		Attempts: 2, BatchSize: 5, DrainTimeout: 4 * time.Second, Logger: log.Logger(),
	}
}

func TestRelayContinuesAfterPublishesThatNeverReturn(t *testing.T) {
	t.Parallel()
	for name, inline := range map[string]bool{"inline": true, "cold": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
				tr, out := newTransactor(t, client), newHanging(t)
				var log rig.Lines
				cfg := impatient(&log)
				cfg.NoInline = !inline
				stop := start(t, tr, out, cfg)
				for _, id := range numbered("stuck", 4) {
					emit(t, tr, id, id)
					redistest.Eventually(t, "the call hangs", func() bool { return out.count(id) > 0 })
				}
				good := numbered("good", 40)
				for _, id := range good {
					emit(t, tr, id, id)
				}
				redistest.Eventually(t, "the other events are published", func() bool {
					return !slices.ContainsFunc(good, func(id string) bool { return out.count(id) == 0 })
				})
				redistest.Eventually(t, "the stuck events are parked", func() bool { return parked(t, tr, "timeout") == 4 })
				if n := log.Count("publisher call abandoned"); n < 8 {
					t.Errorf("%d calls are logged as stuck, want 4 events with 2 attempts each", n)
				}
				began := time.Now()
				stop()
				if took := time.Since(began); took > cfg.DrainTimeout+500*time.Millisecond {
					t.Errorf("Run returned %v after its context ended", took)
				}
			})
		})
	}
}

func TestRelayContinuesAfterPublishesThatEndTheirGoroutine(t *testing.T) {
	t.Parallel()
	exit := func(context.Context, *message.RawMessage) error {
		runtime.Goexit()
		return nil
	}
	goexit := relay.PublisherFunc(func(context.Context, []*message.RawMessage) []error {
		runtime.Goexit()
		return nil
	})
	for name, bad := range map[string]relay.Publisher{"batch": goexit, "func": relay.Func(exit, relay.FuncConfig{Concurrency: 1})} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
				tr, out := newTransactor(t, client), newSink()
				var log rig.Lines
				start(t, tr, relay.PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
					if isStuck(events[0]) {
						return bad.Publish(ctx, events)
					}
					return out.Publish(ctx, events)
				}), impatient(&log))
				for _, id := range numbered("stuck", 8) {
					emit(t, tr, "bad", id)
				}
				redistest.Eventually(t, "the events are parked", func() bool { return counts(t, tr).Parked == 8 })
				emit(t, tr, "good", "good")
				redistest.Eventually(t, "another event is published", func() bool { return out.count("good") == 1 })
				if !strings.Contains(log.String(), "Goexit") {
					t.Error("the log does not name runtime.Goexit")
				}
			})
		})
	}
}

func TestNothingIsSettledAfterRunHasReturned(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.Proxy(t, server.Addr())
	tr, out := newTransactor(t, redistest.Client(t, proxy.Addr())), newSink()
	var log rig.Lines
	stop := start(t, tr, out, relay.Config{NoInline: true, SweepInterval: 10 * time.Millisecond, DrainTimeout: time.Second, Logger: log.Logger()})
	sha := maps.Collect(link.Of(tr).Runner.SHAs())["settle"]
	proxy.On(func(cmd []string) respproxy.Action {
		if slices.Contains(cmd, sha) {
			return respproxy.DropRequest()
		}
		return respproxy.Pass()
	})
	emit(t, tr, "a", "published")
	redistest.Eventually(t, "the event is published", func() bool { return out.count("published") == 1 })
	stop()
	returned := time.Now()
	redistest.Eventually(t, "the relay gives up", func() bool { return log.Count("settling failed") == 1 })
	if took := time.Since(returned); took > 10*time.Second { // a request in flight ends with the client's ReadTimeout, 3 s
		t.Errorf("the relay goes on settling for %v after Run has returned", took)
	}
}

func TestRunReturnsWithinDrainTimeoutThoughPublisherHangs(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, out := newTransactor(t, client), newHanging(t)
		var log rig.Lines
		stop := start(t, tr, out, relay.Config{NoInline: true, SweepInterval: 10 * time.Millisecond, DrainTimeout: 2 * time.Second, Logger: log.Logger()})
		emit(t, tr, "a", "stuck")
		redistest.Eventually(t, "the call hangs", func() bool { return out.count("stuck") == 1 })
		began := time.Now()
		stop()
		if took := time.Since(began); took > 2500*time.Millisecond {
			t.Errorf("Run returned %v after its context ended, with a DrainTimeout of 2s", took)
		}
		redistest.Eventually(t, "the stuck call is logged once", func() bool { return log.Count("publisher call abandoned") == 1 })
		for event, err := range outbox.NewStore(tr).List(t.Context(), outbox.Pending, outbox.ListOptions{}) {
			if err != nil || event.Attempts != 0 || event.Lease != "" {
				t.Errorf("the event is not given back without an attempt: %+v, %v", event, err)
			}
		}
	})
}

func TestLateResultSettlesOnlySentEvents(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, out := newTransactor(t, client), newHanging(t)
		out.answer = func(id string, _ int) error {
			if id == "stuck-refused" {
				return message.Permanent(errors.New("refused"))
			}
			return nil
		}
		var log rig.Lines
		cfg := impatient(&log)
		cfg.Attempts, cfg.BackoffBase, cfg.BackoffCap = 5, time.Hour, time.Hour
		start(t, tr, out, cfg)
		emit(t, tr, "a", "stuck-sent", "stuck-refused")
		failed := func() int64 {
			c, err := outbox.NewStore(tr).Counts(t.Context())
			redistest.Must(t, err)
			return c.Totals.Failed
		}
		redistest.Eventually(t, "both events count as failed", func() bool { return failed() == 2 })
		out.release()
		redistest.Eventually(t, "the event that was sent late is settled", func() bool { return counts(t, tr).Pending == 1 })
		if c := counts(t, tr); c.Parked != 0 || failed() != 2 || out.count("stuck-sent") != 1 {
			t.Errorf("counts %+v, %d failed, %d calls", c, failed(), out.count("stuck-sent"))
		}
	})
}

// transport is a function that implements http.RoundTripper.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// TestStuckEventCostsItsNeighborsNoAttempt publishes one batch in which one event hangs and is sent late.
func TestStuckEventCostsItsNeighborsNoAttempt(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(*hanging) (relay.Publisher, error){
		"func": func(h *hanging) (relay.Publisher, error) { return relay.Func(h.one, relay.FuncConfig{}), nil },
		"route": func(h *hanging) (relay.Publisher, error) {
			rules, err := relay.Route(relay.Rule{Match: func(a message.Attributes) bool { return a[message.AttrID] == "stuck" }, To: h}, relay.Rule{To: h})
			return relay.PublisherFunc(rules.Publish), err // without its scopes, so that the batch is one call
		},
		"limit": func(h *hanging) (relay.Publisher, error) {
			return relay.Limit(h, relay.LimitConfig{Concurrency: 4})
		},
		"http batches": func(h *hanging) (relay.Publisher, error) {
			batches, err := relay.HTTP(relay.HTTPConfig{
				Mode: cehttp.Batched, URLFor: func(e *message.RawMessage) (string, error) { return "http://shop/" + e.ID(), nil },
				Client: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
					event := message.NewRaw(nil, message.Attributes{"id": strings.TrimPrefix(r.URL.Path, "/")}, nil)
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, h.one(r.Context(), event)
				})},
			})
			return relay.PublisherFunc(batches.Publish), err // without its scopes, as above
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
				tr, out := newTransactor(t, client), newHanging(t)
				publisher, err := wrap(out)
				redistest.Must(t, err)
				var log rig.Lines
				cfg := impatient(&log)
				cfg.Attempts = 1
				start(t, tr, publisher, cfg)
				good := numbered("good", 4)
				emit(t, tr, "a", append(slices.Clone(good), "stuck")...)
				redistest.Eventually(t, "the stuck event is parked", func() bool { return parked(t, tr, "timeout") == 1 })
				redistest.Eventually(t, "the others are settled", func() bool { return counts(t, tr).Pending == 0 })
				for _, id := range good {
					if n := out.count(id); n != 1 {
						t.Errorf("%s was published %d times", id, n)
					}
				}
				out.release()
				redistest.Eventually(t, "the stuck event is settled", func() bool { return parked(t, tr, "timeout") == 0 })
			})
		})
	}
}

func TestStuckCallsAreBounded(t *testing.T) {
	t.Parallel()
	const most, running = 256, 16
	_, client := redistest.Mini(t)
	tr, out := newTransactor(t, client), newHanging(t)
	var log rig.Lines
	cfg := impatient(&log)
	cfg.Lease, cfg.DrainTimeout = 100*time.Millisecond, 5*time.Second
	cfg.PublishTimeout, cfg.Attempts, cfg.BatchSize, cfg.PauseCap = time.Millisecond, 1000, 1, 10*time.Millisecond
	cfg.NoInline = true
	start(t, tr, out, cfg)
	for _, id := range numbered("stuck", 20) {
		emit(t, tr, id, id)
	}
	redistest.Eventually(t, "the relay stops calling", func() bool { return log.Count("too many abandoned publisher calls") == 1 })
	emit(t, tr, "good", "good")
	if n := log.Count("publisher call abandoned"); n > most+running {
		t.Errorf("%d calls were abandoned", n)
	}
	if out.count("good") != 0 {
		t.Error("an event was published beyond the bound")
	}
	out.release()
	redistest.Eventually(t, "the relay calls again", func() bool { return out.count("good") == 1 })
	redistest.Eventually(t, "everything is settled", func() bool { return counts(t, tr).Pending == 0 })
}

func TestObserverReceivesStuckCalls(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr, out := newTransactor(t, client), newHanging(t)
	told := make(chan relay.Stuck, 10)
	var log rig.Lines
	cfg := impatient(&log)
	cfg.BackoffBase, cfg.BackoffCap = time.Hour, time.Hour
	cfg.Observer.Stuck = func(_ context.Context, s relay.Stuck) { told <- s }
	start(t, tr, relay.WithScope(out, func(*message.RawMessage) string { return "d" }), cfg)
	emit(t, tr, "a", "stuck")
	if s := <-told; s.Returned || s.Destination != "d" || s.Events != 1 || s.Duration < 50*time.Millisecond || s.Began.IsZero() {
		t.Errorf("%+v", s)
	}
	out.release()
	if s := <-told; !s.Returned || s.Destination != "d" {
		t.Errorf("%+v", s)
	}
	if len(told) > 0 || log.Count("publisher call abandoned") != 1 || log.Count("abandoned publisher call returned") != 1 {
		t.Errorf("it is not reported once: %s", log.String())
	}
}

func TestPublishTimeoutIsAtMostTwoThirdsOfLease(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := newTransactor(t, client)
	for _, c := range []struct {
		cfg  relay.Config
		fine bool
	}{
		{relay.Config{}, true},
		{relay.Config{PublishTimeout: 20 * time.Second}, true},
		{relay.Config{PublishTimeout: 21 * time.Second}, false},
		{relay.Config{PublishTimeout: 21 * time.Second, Lease: time.Minute}, true},
		{relay.Config{PublishTimeout: time.Second, Lease: time.Second}, false},
		{relay.Config{PublishTimeout: time.Microsecond}, false},
		{relay.Config{PublishTimeout: -1}, false},
	} {
		if _, err := relay.New(tr, newSink(), c.cfg); (err == nil) != c.fine {
			t.Errorf("PublishTimeout %v, Lease %v: %v", c.cfg.PublishTimeout, c.cfg.Lease, err)
		}
	}
}

func TestDriveContinuesAfterPublishesThatNeverReturn(t *testing.T) {
	t.Parallel()
	out := newHanging(t)
	ids := append(numbered("stuck", 2), numbered("good", 10)...)
	source := newMemory(ids...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	var log rig.Lines
	go func() {
		ended <- relay.Drive(ctx, source, relay.Func(out.one, relay.FuncConfig{}), relay.DriveConfig{
			Concurrency: 2, BatchSize: 3, Timeout: 50 * time.Millisecond, DrainTimeout: time.Second, Logger: log.Logger(),
		})
	}()
	settled := func(id, what string) bool {
		source.mu.Lock()
		defer source.mu.Unlock()
		return slices.ContainsFunc(source.log[id], func(got string) bool { return strings.Contains(got, what) })
	}
	for _, id := range ids {
		what := "ack"
		if strings.HasPrefix(id, "stuck") {
			what = "did not return"
		}
		redistest.Eventually(t, id+" is settled", func() bool { return settled(id, what) })
	}
	cancel()
	began := time.Now()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 1500*time.Millisecond {
		t.Errorf("Drive returned %v after its context ended", took)
	}
	if log.Count("publisher call abandoned") == 0 {
		t.Error("the stuck calls are not logged")
	}
}
