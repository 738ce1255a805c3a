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
			<-ctx.Done() // after DrainTimeout
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
