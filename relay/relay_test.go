package relay_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stream"
)

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		fmt.Fprintln(os.Stderr, childMain())
		os.Exit(1)
	}
	redistest.Main(m)
}

// sink is a Publisher that records its events.
type sink struct {
	mu     sync.Mutex
	times  map[string]int
	order  []string
	answer func(id string, times int) error
}

func newSink() *sink { return &sink{times: make(map[string]int)} }

func (s *sink) Publish(_ context.Context, events []*message.RawMessage) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := make([]error, len(events))
	for i, event := range events {
		if s.answer != nil {
			errs[i] = s.answer(event.ID(), s.times[event.ID()]+1)
		}
		s.times[event.ID()]++
		s.order = append(s.order, event.ID())
	}
	return errs
}

func (s *sink) count(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times[id]
}

func newTransactor(t testing.TB, client redis.UniversalClient, change ...func(*luatx.Config)) *luatx.Transactor {
	t.Helper()
	cfg := luatx.Config{Namespace: redistest.Namespace(t), Keyspace: luatx.Partitions(4)}
	for _, c := range change {
		c(&cfg)
	}
	tr, err := luatx.New(client, cfg)
	redistest.Must(t, err)
	return tr
}

// start runs a relay until the test ends or stop is called.
func start(t testing.TB, tr *luatx.Transactor, publisher relay.Publisher, cfg relay.Config) (stop func()) {
	t.Helper()
	r, err := relay.New(tr, publisher, cfg)
	redistest.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	if !cfg.NoInline {
		redistest.Eventually(t, "the relay to take reservations", func() bool {
			return link.Of(tr).Relay() != nil || len(done) > 0
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Error("Run does not return")
		}
	})
	t.Cleanup(stop)
	return stop
}

func counts(t testing.TB, tr *luatx.Transactor) outbox.Counts {
	t.Helper()
	c, err := outbox.NewStore(tr).Counts(t.Context())
	redistest.Must(t, err)
	c.Bytes, c.Totals = 0, outbox.Totals{}
	return c
}

// TestCommittingProcessPublishesAtOnce checks that the committing process publishes at once. Nothing else would find the event
// within the test.
func TestCommittingProcessPublishesAtOnce(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, out := newTransactor(t, client), newSink()
		stop := start(t, tr, out, relay.Config{SweepInterval: time.Hour})
		var want []string
		for i := range 20 {
			id := fmt.Sprint("e", i)
			want = append(want, id, id+"b")
			emit(t, tr, fmt.Sprint("a", i), id, id+"b")
		}
		for _, id := range want {
			redistest.Eventually(t, id+" to be published", func() bool { return out.count(id) == 1 })
		}
		redistest.Eventually(t, "everything to be settled", func() bool {
			c := counts(t, tr)
			return c.Pending == 0 && c.Sent == int64(len(want))
		})
		stop()
		for _, id := range want {
			if out.count(id) != 1 {
				t.Errorf("%s was published %d times", id, out.count(id))
			}
		}
	})
}

// TestRelayPublishesWhatItsProcessCommittedBeforeItRan checks that these events do not wait for the sweep, which takes an hour.
func TestRelayPublishesWhatItsProcessCommittedBeforeItRan(t *testing.T) {
	t.Parallel()
	tr, out := newTransactor(t, redistest.Shared(t).Client(t), func(c *luatx.Config) { c.Keyspace = luatx.OwnTags() }), newSink()
	ids := numbered("e", 10)
	for _, id := range ids {
		emit(t, tr, id, id)
	}
	start(t, tr, out, relay.Config{SweepInterval: time.Hour})
	for _, id := range ids {
		redistest.Eventually(t, id+" to be published", func() bool { return out.count(id) == 1 })
	}
}

func TestEventsArePublishedInlineAfterALostReply(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.Proxy(t, server.Addr())
	tr, out := newTransactor(t, redistest.Client(t, proxy.Addr())), newSink()
	start(t, tr, out, relay.Config{SweepInterval: time.Hour, Lease: time.Hour})
	emit(t, tr, "a", "first")
	redistest.Eventually(t, "the first event", func() bool { return out.count("first") == 1 })
	proxy.DropReply(1, respproxy.Command("EVALSHA"))
	emit(t, tr, "a", "second")
	redistest.Eventually(t, "the second event", func() bool { return out.count("second") == 1 })
}

func TestSweepFindsAShardAmongAllSlots(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	tr, out := newTransactor(t, client, func(c *luatx.Config) { c.Keyspace = luatx.OwnTags() }), newSink()
	emit(t, tr, "anything", "e")
	start(t, tr, out, relay.Config{NoInline: true, SweepInterval: time.Second})
	redistest.Eventually(t, "the event to be published", func() bool { return out.count("e") == 1 })
}

func TestAnotherProcessPublishesEventsOfAProcessWithoutARelay(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, out := newTransactor(t, client), newSink()
		ids := numbered("e", 250)
		emit(t, tr, "a", ids...)
		emit(t, tr, "b", "last")
		start(t, elsewhere(t, client, tr), out, relay.Config{NoInline: true})
		for _, id := range append(ids, "last") {
			redistest.Eventually(t, id+" to be published", func() bool { return out.count(id) == 1 })
		}
		redistest.Eventually(t, "everything to be settled", func() bool { return counts(t, tr).Pending == 0 })
	})
}

func TestNextBatchOfASlotIsClaimedWhileAFullOneIsPublished(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	tr := newTransactor(t, client, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1) })
	var batches atomic.Int64
	release := make(chan struct{})
	defer close(release)
	emit(t, tr, "a", names("e", 4)...)
	start(t, tr, relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
		batches.Add(1)
		<-release
		return make([]error, len(events))
	}), relay.Config{NoInline: true, Concurrency: 2, BatchSize: 2, Lease: time.Hour}) // no publish runs out of time
	redistest.Eventually(t, "two batches on their way", func() bool { return batches.Load() == 2 })
}

// TestFailedEventsAreParkedUntilTheyAreRearmed checks the number of attempts, that other events are not affected, and that a
// parked event keeps its error until it is re-armed.
func TestFailedEventsAreParkedUntilTheyAreRearmed(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, out := newTransactor(t, client), newSink()
		var mended atomic.Bool
		out.answer = func(id string, _ int) error {
			switch {
			case mended.Load():
				return nil
			case id == "poison":
				return errors.New("no such customer")
			case id == "hopeless":
				return message.Permanent(errors.New("no such type"))
			}
			return nil
		}
		start(t, tr, out, relay.Config{Attempts: 3, BackoffBase: time.Millisecond, BackoffCap: 5 * time.Millisecond, SweepInterval: 50 * time.Millisecond})
		emit(t, tr, "a", "good", "poison", "hopeless")
		redistest.Eventually(t, "two events to be parked", func() bool { return counts(t, tr).Parked == 2 })
		if out.count("poison") != 3 || out.count("hopeless") != 1 || out.count("good") != 1 {
			t.Errorf("published %v", out.times)
		}
		store := outbox.NewStore(tr).As("operator")
		slots := make(map[int][]string)
		for p, err := range store.Parked(t.Context(), outbox.Filter{}) {
			redistest.Must(t, err)
			if p.Message.ID() != p.ID || !strings.Contains(p.Error, "no such") || p.At.IsZero() || p.ID == "poison" && p.Attempts != 3 {
				t.Errorf("parked: %+v", p)
			}
			slots[p.Slot] = append(slots[p.Slot], p.ID)
		}
		mended.Store(true)
		moved := 0
		for n, ids := range slots {
			m, err := store.Rearm(t.Context(), n, append(ids, "not parked")...)
			redistest.Must(t, err)
			moved += m.Done()
		}
		if moved != 2 {
			t.Errorf("%d events re-armed, want 2", moved)
		}
		redistest.Eventually(t, "them to be sent", func() bool { return counts(t, tr) == outbox.Counts{Sent: 3} })
	})
}

func TestStoppedRelayLeavesItsEventsDue(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	tr := newTransactor(t, client)
	entered := make(chan struct{})
	blocking := relay.PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
		close(entered)
		<-ctx.Done()
		errs := make([]error, len(events))
		for i := range errs {
			errs[i] = ctx.Err()
		}
		return errs
	})
	stop := start(t, tr, blocking, relay.Config{SweepInterval: 10 * time.Millisecond, DrainTimeout: 10 * time.Millisecond})
	emit(t, tr, "a", "e")
	<-entered
	stop()
	if c := counts(t, tr); c.Pending != 1 || c.Leased != 0 {
		t.Errorf("%+v", c)
	}
	out := newSink()
	start(t, tr, out, relay.Config{Attempts: 1, SweepInterval: 10 * time.Millisecond})
	redistest.Eventually(t, "another relay to publish it at its first attempt", func() bool { return out.count("e") == 1 })
}

// TestStoppedRelayHasASecondToGiveEventsBack checks it with a server that takes longer than DrainTimeout.
func TestStoppedRelayHasASecondToGiveEventsBack(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	tr, hook, entered := newTransactor(t, client), newHoldsUp(settle.GiveBack), make(chan struct{})
	client.AddHook(hook)
	stop := start(t, tr, relay.PublisherFunc(func(ctx context.Context, _ []*message.RawMessage) []error {
		close(entered)
		<-ctx.Done()
		return []error{ctx.Err()}
	}), relay.Config{NoInline: true, SweepInterval: 10 * time.Millisecond, DrainTimeout: time.Millisecond})
	emit(t, tr, "a", "e")
	<-entered
	time.AfterFunc(100*time.Millisecond, func() { close(hook.open) })
	stop()
	if c := counts(t, tr); c != (outbox.Counts{Pending: 1}) {
		t.Errorf("after Run: %+v", c)
	}
}

// TestStoppedRelayLetsCallsFinish checks it inline and cold, with a call that a worker of a Scoped publisher no longer waits for.
func TestStoppedRelayLetsCallsFinish(t *testing.T) {
	t.Parallel()
	for name, noInline := range map[string]bool{"inline": false, "cold": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, client := redistest.Mini(t)
			tr := newTransactor(t, client)
			entered, leave := make(chan context.Context, 9), make(chan struct{})
			publisher := relay.WithScope(relay.PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
				entered <- ctx
				if events[0].ID() == "late" {
					<-leave
				}
				return []error{ctx.Err()}
			}), func(*message.RawMessage) string { return "s" })
			r, err := relay.New(tr, publisher, relay.Config{NoInline: noInline, Concurrency: 1, DrainTimeout: time.Hour, SweepInterval: 10 * time.Millisecond})
			redistest.Must(t, err)
			ctx, stop := context.WithCancel(t.Context())
			stopped := make(chan error, 1)
			go func() { stopped <- r.Run(ctx) }()
			redistest.Eventually(t, "the relay to run", func() bool { return noInline || link.Of(tr).Relay() != nil })
			emit(t, tr, "a", "late")
			call := <-entered
			emit(t, tr, "a", "next") // by the only worker
			<-entered
			redistest.Eventually(t, "the next event to be settled", func() bool { return counts(t, tr).Sent == 1 })
			stop()
			redistest.Eventually(t, "the relay to take no reservations", func() bool {
				inline := link.Of(tr).Relay()
				if inline == nil {
					return true
				}
				_, open := inline.Reserve()
				if open {
					inline.Committed(0, nil, true)
				}
				return !open
			})
			if call.Err() != nil || len(stopped) > 0 {
				t.Errorf("the context of a call has ended: %v, Run has returned: %t", call.Err(), len(stopped) > 0)
			}
			close(leave)
			if err := <-stopped; err != nil {
				t.Error(err)
			}
			if c := counts(t, tr); c != (outbox.Counts{Sent: 2}) || call.Err() == nil {
				t.Errorf("%+v, the context of the call: %v", c, call.Err())
			}
		})
	}
}

// TestNothingIsClaimedBesideAFullBatchWithAnEventThatWasTriedBefore checks also that the rest is published afterwards.
func TestNothingIsClaimedBesideAFullBatchWithAnEventThatWasTriedBefore(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr, out := newTransactor(t, client, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1) }), newSink()
	ran := countScripts(client, tr)
	entered, leave := make(chan struct{}), make(chan struct{})
	start(t, tr, relay.PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
		switch id := events[0].ID(); {
		case id == "again" && out.count(id) == 0:
			out.Publish(ctx, events)
			return []error{errNo}
		case id == "again":
			close(entered)
			<-leave
		}
		return out.Publish(ctx, events)
	}), relay.Config{
		NoInline: true, NoWakeUps: true, Concurrency: 2, BatchSize: 1, BackoffBase: time.Millisecond, BackoffCap: time.Millisecond,
		SweepInterval: 10 * time.Millisecond, Lease: time.Hour,
	})
	emit(t, tr, "a", "again")
	<-entered
	sweeps := func() {
		swept := ran.of("exists pending")
		redistest.Eventually(t, "five sweeps", func() bool { return ran.of("exists pending") >= swept+5 })
	}
	sweeps() // claims that began before this one end
	emit(t, tr, "a", "other")
	sweeps()
	if out.count("other") > 0 {
		t.Error("another event was published meanwhile")
	}
	close(leave)
	redistest.Eventually(t, "both to be sent", func() bool { return counts(t, tr) == outbox.Counts{Sent: 2} })
}

func TestStreamsPublishesToAnotherSlotAfterAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	proxy := redistest.Proxy(t, server.Addr())
	client, direct := redistest.Client(t, proxy.Addr(), func(o *redis.Options) { o.MaxRetries, o.DialerRetries = -1, 1 }), server.Client(t)
	tr := newTransactor(t, direct)
	to := "out:" + redistest.Tag(t)
	publisher, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: to})
	redistest.Must(t, err)
	_ = proxy.Close() // unreachable
	start(t, tr, relay.Streams(publisher), relay.Config{Attempts: 1, PauseCap: 10 * time.Millisecond, SweepInterval: 10 * time.Millisecond})
	emit(t, tr, "a", "e")
	redistest.Eventually(t, "an outage that cost no attempt", func() bool { return counts(t, tr).Pending == 1 })

	second, err := stream.NewPublisher(direct, stream.PublisherConfig{Stream: to})
	redistest.Must(t, err)
	start(t, elsewhere(t, direct, tr), relay.Streams(second), relay.Config{Attempts: 1, SweepInterval: 10 * time.Millisecond})
	redistest.Eventually(t, "the event in the stream", func() bool { return direct.XLen(t.Context(), to).Val() == 1 })
	wrong := "list:" + redistest.Tag(t)
	direct.RPush(t.Context(), wrong, "x")
	third, err := stream.NewPublisher(direct, stream.PublisherConfig{Stream: wrong})
	redistest.Must(t, err)
	errs := relay.Streams(third).Publish(t.Context(), []*message.RawMessage{message.NewRaw([]byte("1"), message.Attributes{"id": "x"}, nil)})
	if len(errs) != 1 || errs[0] == nil || errors.Is(errs[0], relay.ErrUnavailable) {
		t.Errorf("a key of the wrong type: %v", errs)
	}
	small, err := stream.NewPublisher(direct, stream.PublisherConfig{Stream: to, MaxBytes: 10})
	redistest.Must(t, err)
	errs = relay.Streams(small).Publish(t.Context(), []*message.RawMessage{message.NewRaw([]byte("more than 10 bytes"), message.Attributes{"id": "x"}, nil)})
	if len(errs) != 1 || !errors.Is(errs[0], stream.ErrTooLarge) || errors.Is(errs[0], relay.ErrUnavailable) {
		t.Errorf("a message that is too large: %v", errs)
	}
}

func TestInvalidConfigAndSecondInlineRelayAreRejected(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer client.Close()
	tr := newTransactor(t, client)
	for name, cfg := range map[string]relay.Config{
		"BatchSize":  {BatchSize: 2000},
		"Lease":      {Lease: time.Millisecond},
		"Attempts":   {Attempts: -1},
		"BackoffCap": {BackoffCap: time.Millisecond},
	} {
		if _, err := relay.New(tr, newSink(), cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := relay.New(tr, nil, relay.Config{}); err == nil {
		t.Error("a relay without a publisher was made")
	}
	start(t, tr, newSink(), relay.Config{})
	second, err := relay.New(tr, newSink(), relay.Config{})
	redistest.Must(t, err)
	for range 2 {
		if err := second.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "attach relay") {
			t.Errorf("a second inline relay: %v", err)
		}
	}
}

func TestRunFailsWhileItIsRunning(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := newTransactor(t, client)
	r, err := relay.New(tr, newSink(), relay.Config{})
	redistest.Must(t, err)
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		redistest.Eventually(t, "the relay to run", func() bool { return link.Of(tr).Relay() != nil || len(done) > 0 })
		if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "is already running") {
			t.Errorf("it runs twice: %v", err)
		}
		cancel()
		redistest.Must(t, <-done)
	}
}
