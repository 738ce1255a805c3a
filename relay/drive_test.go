package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// memory is a Source that delivers an event again until it is acked, as an outbox does.
type memory struct {
	mu     sync.Mutex
	events chan *message.RawMessage
	log    map[string][]string
	left   sync.WaitGroup
	waited bool
}

func newMemory(ids ...string) *memory {
	m := &memory{events: make(chan *message.RawMessage, len(ids)), log: map[string][]string{}}
	m.left.Add(len(ids))
	for _, id := range ids {
		m.offer(id)
	}
	return m
}

func (m *memory) offer(id string) {
	say := func(what string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.log[id] = append(m.log[id], what)
	}
	m.events <- message.NewRaw(nil, message.Attributes{message.AttrID: id}, message.NewAckingFrom(message.AckingConfig{
		Ack: func() { say("ack"); m.left.Done() },
		Nack: func(err error) {
			if u, ok := errors.AsType[interface {
				error
				Untried() bool
			}](err); ok && u.Untried() {
				say("untried")
			} else {
				say(err.Error())
			}
			wait, _ := message.RetryDelay(err)
			time.AfterFunc(wait, func() { m.offer(id) })
		},
	}))
}

func (m *memory) Source(ctx context.Context) (<-chan *message.RawMessage, error) {
	out := make(chan *message.RawMessage, cap(m.events))
	go func() {
		defer close(out)
		for {
			select {
			case <-ctx.Done():
				return
			case msg := <-m.events:
				out <- msg // there is room for all
			}
		}
	}()
	return out, nil
}

func (m *memory) Wait() { m.waited = true }

func TestDriveSettlesEventsByTheErrorsOfThePublisher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemory("a", "b", "c")
		var mu sync.Mutex
		calls := map[string]int{}
		publisher := relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
			mu.Lock()
			defer mu.Unlock()
			errs := make([]error, len(events))
			for i, e := range events {
				calls[e.ID()]++
				switch n := calls[e.ID()]; {
				case e.ID() == "b" && n == 1:
					errs[i] = errors.New("refused")
				case e.ID() == "c" && n <= 3:
					errs[i] = relay.Unavailable(errors.New("down"))
				}
			}
			return errs
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		start := time.Now()
		go func() { ended <- relay.Drive(ctx, source, publisher, relay.DriveConfig{Logger: quiet()}) }()
		source.left.Wait()
		if took := time.Since(start); took < 100*time.Millisecond {
			t.Errorf("it paused for %v", took)
		}
		cancel()
		if err := <-ended; err != nil || !source.waited {
			t.Errorf("%v, waited: %v", err, source.waited)
		}
		for id, want := range map[string]string{"a": "ack", "b": "refused ack", "c": "ack"} {
			tried := slices.DeleteFunc(slices.Clone(source.log[id]), func(what string) bool { return what == "untried" })
			if got := strings.Join(tried, " "); got != want {
				t.Errorf("%s: %s, want %s", id, got, want)
			}
		}
		if n := len(source.log["c"]); n < 4 {
			t.Errorf("c was settled %d times", n)
		}
	})
}

// TestStoppedDriveGivesUnfinishedEventsBack checks that unfinished events are given back, also if the Publisher panics.
func TestStoppedDriveGivesUnfinishedEventsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemory("a", "b")
		ctx, cancel := context.WithCancel(t.Context())
		publisher := relay.PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
			cancel()
			stopped := time.Now()
			<-ctx.Done() // after DrainTimeout
			if took := time.Since(stopped); took != 750*time.Millisecond {
				t.Errorf("the call had %v left, want three quarters of a second", took)
			}
			panic(fmt.Sprint(len(events)))
		})
		if err := relay.Drive(ctx, source, publisher, relay.DriveConfig{Concurrency: 1, DrainTimeout: time.Second, Logger: quiet()}); err != nil {
			t.Error(err)
		}
		if len(source.log) == 0 {
			t.Error("nothing was settled")
		}
		for id, settlements := range source.log {
			for _, what := range settlements {
				if what != "untried" {
					t.Errorf("%s: %s", id, what)
				}
			}
		}
	})
	if relay.Drive(t.Context(), nil, relay.PublisherFunc(nil), relay.DriveConfig{}) == nil || relay.Drive(t.Context(), newMemory(), nil, relay.DriveConfig{}) == nil {
		t.Error("a Source or a Publisher that is nil was accepted")
	}
	for _, cfg := range []relay.DriveConfig{{BatchSize: -1}, {BatchSize: 1001}, {Concurrency: -1}, {Timeout: -1}} {
		if err := relay.Drive(t.Context(), newMemory(), relay.PublisherFunc(nil), cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// broken is a Source that cannot start.
type broken struct{}

func (broken) Source(context.Context) (<-chan *message.RawMessage, error) { return nil, errNo }

func TestDriveReturnsTheErrorOfASourceThatCannotStart(t *testing.T) {
	t.Parallel()
	if err := relay.Drive(t.Context(), broken{}, relay.PublisherFunc(nil), relay.DriveConfig{}); !errors.Is(err, errNo) {
		t.Errorf("%v, want %v", err, errNo)
	}
}

func TestDriveBoundsConcurrentCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source, out := newMemory(numbered("e", 12)...), &meter{took: time.Second}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		var calls []context.Context
		began := time.Now()
		go func() {
			ended <- relay.Drive(ctx, source, relay.PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
				out.mu.Lock()
				calls = append(calls, ctx)
				out.mu.Unlock()
				return out.Publish(ctx, events)
			}), relay.DriveConfig{BatchSize: 1, Concurrency: 3, Logger: quiet()})
		}()
		source.left.Wait()
		if took := time.Since(began); took != 4*time.Second || out.most != 3 {
			t.Errorf("12 calls of a second took %v, %d at a time", took, out.most)
		}
		synctest.Wait()
		for i, call := range calls {
			if call.Err() == nil {
				t.Errorf("the context of call %d has not ended with the call", i)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestDriveWaitsForTheProbeOfAPausedDestination(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source, probing, release := newMemory("a"), make(chan struct{}), make(chan struct{})
		var calls atomic.Int64
		publisher := relay.PublisherFunc(func(context.Context, []*message.RawMessage) []error {
			if calls.Add(1) == 1 {
				return []error{relay.Unavailable(errors.New("down"))}
			}
			close(probing)
			<-release
			return []error{nil}
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- relay.Drive(ctx, source, publisher, relay.DriveConfig{Logger: quiet()}) }()
		<-probing
		cancel()
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("Drive has returned before the probe")
		}
		close(release)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		source.left.Wait()
	})
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestDriveCallsThePublisherWithAtMostABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source, sizes := newMemory(numbered("e", 10)...), []int(nil)
		publisher := relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
			sizes = append(sizes, len(events)) // by one worker
			time.Sleep(time.Second)            // meanwhile the source delivers the others
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- relay.Drive(ctx, source, publisher, relay.DriveConfig{BatchSize: 3, Concurrency: 1, Logger: quiet()})
		}()
		source.left.Wait()
		cancel()
		if err := <-ended; err != nil || slices.Max(sizes) != 3 {
			t.Errorf("%v, batches of %v", err, sizes)
		}
	})
}

// TestDriveHandsAnEventBackForTheDelayThatItsErrorRequests checks also which errors count as an attempt.
func TestDriveHandsAnEventBackForTheDelayThatItsErrorRequests(t *testing.T) {
	t.Parallel()
	odd := errors.New("odd")
	for name, c := range map[string]struct {
		err  error
		what string
	}{
		"later":       {relay.Later(odd, time.Minute), "untried"},
		"unavailable": {relay.Unavailable(message.RetryAfter(odd, time.Minute)), "untried"},
		"failed":      {message.RetryAfter(odd, time.Minute), "odd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				source := newMemory("e")
				var calls []time.Time
				publisher := relay.PublisherFunc(func(context.Context, []*message.RawMessage) []error {
					if calls = append(calls, time.Now()); len(calls) == 1 {
						return []error{c.err}
					}
					return nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- relay.Drive(ctx, source, publisher, relay.DriveConfig{Logger: quiet()}) }()
				source.left.Wait()
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if took := calls[1].Sub(calls[0]); took != time.Minute || !slices.Equal(source.log["e"], []string{c.what, "ack"}) {
					t.Errorf("published again after %v, settled %v", took, source.log["e"])
				}
			})
		})
	}
}

func TestDrivePausesOnlyTheDestinationThatIsUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemory("dead", "alive0", "alive1")
		dead := true
		publisher := relay.WithScope(relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
			if dead && events[0].ID() == "dead" {
				dead = false
				return []error{relay.Unavailable(errors.New("down"))}
			}
			return nil
		}), func(e *message.RawMessage) string { return e.ID()[:4] })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- relay.Drive(ctx, source, publisher, relay.DriveConfig{BatchSize: 1, Concurrency: 1, Logger: quiet()})
		}()
		source.left.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, id := range []string{"alive0", "alive1"} {
			if !slices.Equal(source.log[id], []string{"ack"}) {
				t.Errorf("%s: %v", id, source.log[id])
			}
		}
	})
}

// TestObserverOfDriveReceivesCallsOutagesAndStuckCalls checks one destination that is down at first, and one whose first call hangs.
func TestObserverOfDriveReceivesCallsOutagesAndStuckCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source, release := newMemory("down", "hangs"), make(chan struct{})
		var mu sync.Mutex
		calls, told := map[string]int{}, map[string][]string{}
		publisher := relay.WithScope(relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
			id := events[0].ID()
			mu.Lock()
			calls[id]++
			first := calls[id] == 1
			mu.Unlock()
			switch {
			case first && id == "down":
				return []error{relay.Unavailable(errNo)}
			case first:
				<-release
			}
			return nil
		}), func(e *message.RawMessage) string { return e.ID() })
		tell := func(destination, what string) {
			mu.Lock()
			defer mu.Unlock()
			told[destination] = append(told[destination], what)
		}
		observer := relay.Observer{
			Published: func(_ context.Context, p relay.Published) {
				tell(p.Destination, fmt.Sprint("published ", p.Events, " ", p.Failed))
			},
			Settled: func(context.Context, relay.Settled) { t.Error("told of settled events") },
			Outage:  func(_ context.Context, o relay.Outage) { tell(o.Destination, fmt.Sprint("outage over ", o.Over)) },
			Stuck: func(_ context.Context, s relay.Stuck) {
				tell(s.Destination, fmt.Sprint("stuck ", s.Events, " returned ", s.Returned))
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- relay.Drive(ctx, source, publisher, relay.DriveConfig{Timeout: time.Second, Observer: observer, Logger: quiet()})
		}()
		source.left.Wait()
		close(release)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		for destination, want := range map[string][]string{
			"down":  {"published 1 1", "outage over false", "published 1 0", "outage over true"},
			"hangs": {"stuck 1 returned false", "published 1 1", "published 1 0", "stuck 1 returned true"},
		} {
			if got := told[destination]; !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", destination, got, want)
			}
		}
	})
}
