package relay_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/relay/cehttp"
)

// shop is a receiver of webhooks that records the ids that it accepted, and the time of each request.
type shop struct {
	answer func(w http.ResponseWriter, event *message.RawMessage, times int) // if nil, shop accepts the event

	mu    sync.Mutex
	times map[string]int
	taken map[string]int
	asked []time.Time
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	events, err := cehttp.Read(w, r, cehttp.ReadConfig{Secrets: [][]byte{webhookSecret}})
	if err != nil || len(events) != 1 {
		http.Error(w, fmt.Sprint(err), cehttp.Status(err))
		return
	}
	id := events[0].ID()
	s.mu.Lock()
	if s.times == nil {
		s.times, s.taken = map[string]int{}, map[string]int{}
	}
	s.times[id]++
	times := s.times[id]
	s.asked = append(s.asked, time.Now())
	s.mu.Unlock()
	answer := httptest.NewRecorder()
	if s.answer != nil {
		s.answer(answer, events[0], times)
	}
	maps.Copy(w.Header(), answer.Header())
	if answer.Code/100 == 2 {
		s.mu.Lock()
		s.taken[id]++
		s.mu.Unlock()
	}
	w.WriteHeader(answer.Code)
	_, _ = io.Copy(w, answer.Body)
}

func (s *shop) seen(id string) (times, taken int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times[id], s.taken[id]
}

// serve listens on an address, or on a free one if it is empty.
func serve(t testing.TB, address string, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	if address != "" {
		_ = server.Listener.Close()
		var err error
		if server.Listener, err = net.Listen("tcp", address); err != nil {
			t.Fatal(err)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server
}

var quickly = relay.Config{
	Attempts: 2, BackoffBase: time.Millisecond, BackoffCap: 5 * time.Millisecond, PauseCap: 20 * time.Millisecond, SweepInterval: 50 * time.Millisecond,
}

func TestRelaySendsRetriesOrParksByHTTPStatus(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		var mended atomic.Bool
		s := &shop{answer: func(w http.ResponseWriter, event *message.RawMessage, times int) {
			status := map[string]int{"throttled": 429, "busy": 503, "poison": 500, "forbidden": 403, "invalid": 422, "gone": 410}[event.ID()]
			if status == 0 || mended.Load() || (status == 429 || status == 503) && times > 5 {
				return
			}
			http.Error(w, "because of "+event.ID(), status)
		}}
		tr := newTransactor(t, client)
		start(t, tr, newHTTP(t, relay.HTTPConfig{URL: serve(t, "", s).URL, Secrets: [][]byte{webhookSecret}}), quickly)
		emitTo(t, tr, "a", "", "good", "throttled", "busy", "poison", "forbidden", "invalid", "gone")
		redistest.Eventually(t, "everything to be sent or parked", func() bool { return counts(t, tr) == outbox.Counts{Sent: 3, Parked: 4} })
		for id, want := range map[string][2]int{"good": {1, 1}, "throttled": {6, 1}, "busy": {6, 1}, "poison": {2, 0}, "forbidden": {2, 0}, "invalid": {1, 0}, "gone": {1, 0}} {
			times, taken := s.seen(id)
			if taken != want[1] || times < want[0] || want[1] == 0 && times != want[0] {
				t.Errorf("%s was sent %d times and taken %d times, want %v", id, times, taken, want)
			}
		}
		store := outbox.NewStore(tr).As("operator")
		view, err := store.Overview(t.Context())
		if want := map[string]int64{"http_500": 1, "http_403": 1, "http_422": 1, "http_410": 1}; err != nil || !maps.Equal(view.ByClass, want) {
			t.Errorf("parked by class: %v, %v, want %v", view.ByClass, err, want)
		}
		mended.Store(true)
		result, err := store.RearmAll(t.Context(), outbox.Filter{}, outbox.RearmOptions{MaxParkedAgain: -1})
		if err != nil || result.Rearmed != 4 {
			t.Fatal(result, err)
		}
		redistest.Eventually(t, "the re-armed to be sent", func() bool { return counts(t, tr) == outbox.Counts{Sent: 7} })
	})
}

func TestHTTPReceiverThatRestartsCostsNoAttempt(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := &shop{}
	server := serve(t, "", s)
	address, url := server.Listener.Addr().String(), server.URL
	server.Close()
	tr := newTransactor(t, client)
	cfg, log := quickly, rig.Lines{}
	cfg.Attempts, cfg.Logger = 1, log.Logger()
	start(t, tr, newHTTP(t, relay.HTTPConfig{URL: url, Secrets: [][]byte{webhookSecret}}), cfg)
	all := numbered("e", 20)
	for _, id := range all {
		emitTo(t, tr, id, "", id)
	}
	redistest.Eventually(t, "the outage to be noticed", func() bool { return log.Count("publisher unavailable") == 1 })
	serve(t, address, s)
	redistest.Eventually(t, "everything to be sent", func() bool { return counts(t, tr) == outbox.Counts{Sent: 20} })
	for _, id := range all {
		if _, taken := s.seen(id); taken != 1 {
			t.Errorf("%s was taken %d times", id, taken)
		}
	}
	if n := log.Count("publisher unavailable"); n != 1 {
		t.Errorf("%d lines of the log about one outage", n)
	}
}

// TestRelayHonorsRetryAfterOfOneReceiver checks that the relay honors Retry-After, and that another receiver is not affected.
func TestRelayHonorsRetryAfterOfOneReceiver(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		throttles := &shop{answer: func(w http.ResponseWriter, _ *message.RawMessage, times int) {
			if times == 1 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}}
		well := &shop{}
		urls := map[string]string{"throttles": serve(t, "", throttles).URL, "well": serve(t, "", well).URL}
		p := newHTTP(t, relay.HTTPConfig{
			URLFor:  func(e *message.RawMessage) (string, error) { return urls[e.Destination()], nil },
			Secrets: [][]byte{webhookSecret},
		})
		tr := newTransactor(t, client)
		cfg, log := quickly, rig.Lines{}
		cfg.Attempts, cfg.Logger = 1, log.Logger()
		start(t, tr, p, cfg)
		emitTo(t, tr, "a", "throttles", "first")
		redistest.Eventually(t, "the first answer to be known", func() bool { return log.Count("publisher unavailable") == 1 })
		emitTo(t, tr, "a", "throttles", "second")
		emitTo(t, tr, "a", "well", "third")
		redistest.Eventually(t, "the other receiver", func() bool { _, taken := well.seen("third"); return taken == 1 })
		redistest.Eventually(t, "everything to be sent", func() bool { return counts(t, tr) == outbox.Counts{Sent: 3} })
		if waits := throttles.waits(); waits[0] < 900*time.Millisecond {
			t.Errorf("it was asked again after %v", waits)
		}
		if waits := well.waits(); slices.Max(append(waits, 0)) > time.Second {
			t.Errorf("the other waited as well: %v", waits)
		}
	})
}

// waits returns the times between requests.
func (s *shop) waits() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var waits []time.Duration
	for i := 1; i < len(s.asked); i++ {
		waits = append(waits, s.asked[i].Sub(s.asked[i-1]))
	}
	return waits
}
