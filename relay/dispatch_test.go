package relay_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

// emitTo commits one transaction with events of the given ids for a destination.
func emitTo(t testing.TB, tr *luatx.Transactor, aggregate, destination string, ids ...string) {
	t.Helper()
	events := make([]luatx.Event, len(ids))
	for i, id := range ids {
		body, err := outbox.Encode(message.New(map[string]string{"for": destination}, message.Attributes{
			"id": id, "source": "/s", "type": "sold", "destination": destination,
		}, nil))
		redistest.Must(t, err)
		events[i] = luatx.Event{ID: id, Body: body}
	}
	commit(t, tr, aggregate, events...)
}

func byDestination(event *message.RawMessage) string { return event.Destination() }

// TestUnavailableDestinationStopsNoOther checks that an unavailable destination stops no other, costs its events no attempt,
// and is reported once.
func TestUnavailableDestinationStopsNoOther(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, sent := newTransactor(t, client), newSink()
		var mended atomic.Bool
		publisher := relay.WithScope(relay.PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
			if events[0].Destination() == "dead" && !mended.Load() {
				errs := make([]error, len(events))
				for i := range errs {
					errs[i] = relay.Unavailable(errors.New("connection refused"))
				}
				return errs
			}
			return sent.Publish(ctx, events)
		}), byDestination)
		var log rig.Lines
		start(t, tr, publisher, relay.Config{Attempts: 1, PauseCap: 100 * time.Millisecond, Logger: log.Logger()})
		for i := range 30 {
			emitTo(t, tr, fmt.Sprint("a", i), "dead", fmt.Sprint("dead", i))
			emitTo(t, tr, fmt.Sprint("a", i), "alive", fmt.Sprint("alive", i))
		}
		for i := range 30 {
			redistest.Eventually(t, "the other destination", func() bool { return sent.count(fmt.Sprint("alive", i)) == 1 })
		}
		redistest.Eventually(t, "them to be settled", func() bool {
			c := counts(t, tr)
			return c.Pending == 30 && c.Sent == 30 && c.Parked == 0
		})
		if n := log.Count("destination=dead"); n != 1 {
			t.Errorf("%d lines of the log about one outage", n)
		}
		mended.Store(true)
		redistest.Eventually(t, "everything to be sent", func() bool { return counts(t, tr) == outbox.Counts{Sent: 60} })
	})
}

func TestHangingDestinationDoesNotOccupyAWorkerForever(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	tr, sent := newTransactor(t, client, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1) }), newSink()
	hangs := make(chan struct{}, 100)
	var first atomic.Bool
	publisher := relay.WithScope(relay.PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
		if events[0].Destination() == "alive" {
			return sent.Publish(ctx, events)
		}
		if !first.CompareAndSwap(false, true) {
			hangs <- struct{}{}
			<-ctx.Done()
		}
		errs := make([]error, len(events))
		for i := range errs {
			errs[i] = relay.Unavailable(errors.New("no answer"))
		}
		return errs
	}), byDestination)
	emitTo(t, tr, "a", "dead", "dead")
	start(t, tr, publisher, relay.Config{
		NoInline: true, Concurrency: 1, Lease: time.Minute, PauseCap: 10 * time.Millisecond,
		SweepInterval: 10 * time.Millisecond, DrainTimeout: time.Millisecond,
	})
	<-hangs
	for i := range 5 {
		id := fmt.Sprint("alive", i)
		emitTo(t, tr, "a", "alive", id)
		redistest.Eventually(t, "an event of another destination beside the probe", func() bool { return sent.count(id) == 1 })
	}
	if len(hangs) > 0 {
		t.Error("two probes at a time")
	}
}

// TestSlowDestinationDelaysNoOther checks that events of another destination do not wait for a slow one, and that the slow
// destination does not get all events at once.
func TestSlowDestinationDelaysNoOther(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	tr, sent := newTransactor(t, client, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1) }), newSink()
	release := make(chan struct{})
	var inside, most atomic.Int64
	publisher := relay.WithScope(relay.PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
		if events[0].Destination() == "slow" {
			n := inside.Add(1)
			defer inside.Add(-1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			<-release
		}
		return sent.Publish(ctx, events)
	}), byDestination)
	var log rig.Lines
	start(t, tr, publisher, relay.Config{NoInline: true, Concurrency: 1, BatchSize: 10, Attempts: 1, SweepInterval: 10 * time.Millisecond, Logger: log.Logger()})
	emitTo(t, tr, "a", "slow", numbered("slow", 200)...)
	redistest.Eventually(t, "enough to be on its way", func() bool { return inside.Load() == 8 })
	for i := range 5 {
		id := fmt.Sprint("quick", i)
		emitTo(t, tr, "a", "quick", id)
		redistest.Eventually(t, "an event of another destination", func() bool { return sent.count(id) == 1 })
	}
	close(release)
	redistest.Eventually(t, "everything to be sent", func() bool { return counts(t, tr) == outbox.Counts{Sent: 205} })
	if most.Load() != 8 || log.Count("unavailable") > 0 {
		t.Errorf("%d batches at a time, log %s", most.Load(), log.String())
	}
}

func TestLaterPausesNothingAndCountsNoAttempt(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, out := newTransactor(t, client), newSink()
		out.answer = func(id string, times int) error {
			if id == "waits" && times < 5 {
				return relay.Later(errors.New("no room"), 5*time.Millisecond)
			}
			return nil
		}
		var log rig.Lines
		start(t, tr, out, relay.Config{Attempts: 1, SweepInterval: 10 * time.Millisecond, Logger: log.Logger()})
		emit(t, tr, "a", "waits", "goes")
		redistest.Eventually(t, "both to be sent", func() bool { return counts(t, tr) == outbox.Counts{Sent: 2} })
		if out.count("goes") != 1 || out.count("waits") != 5 || log.Count("unavailable") != 0 {
			t.Errorf("published %v, log %s", out.times, log.String())
		}
	})
}
