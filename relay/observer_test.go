package relay_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// observed sums the notifications of an Observer.
type observed struct {
	mu                     sync.Mutex
	published, refused     int
	sent, failed, returned int
	classes                []string
	outages                []bool
}

func (o *observed) observer() relay.Observer {
	return relay.Observer{
		Published: func(_ context.Context, p relay.Published) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.published, o.refused = o.published+p.Events, o.refused+p.Failed
			if (p.Failed > 0) != (p.Err != nil) || p.Duration < 0 || p.Began.IsZero() {
				o.classes = append(o.classes, "inconsistent")
			}
		},
		Settled: func(_ context.Context, s relay.Settled) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.sent, o.failed, o.returned = o.sent+s.Sent, o.failed+s.Failed, o.returned+s.Returned
			for _, p := range s.Parked {
				o.classes = append(o.classes, p.ID+" "+p.Class+" "+p.Error)
			}
		},
		Outage: func(_ context.Context, out relay.Outage) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.outages = append(o.outages, out.Over)
		},
	}
}

// look calls f with the sums.
func (o *observed) look(f func(*observed) bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return f(o)
}

func TestObserverReceivesSettlementsAndOutages(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, out, seen := newTransactor(t, client), newSink(), &observed{}
		out.answer = func(id string, times int) error {
			switch {
			case id == "bad":
				return message.Permanent(relay.Classify("http 422", errors.New("unreadable")))
			case id == "never":
				return errors.New("no")
			case id == "down" && times == 1:
				return relay.Unavailable(errors.New("out of reach"))
			}
			return nil
		}
		panics := relay.Observer{Settled: func(context.Context, relay.Settled) { panic("an observer's") }}
		start(t, tr, out, relay.Config{
			Observer: panics.And(seen.observer()), Attempts: 2, BackoffBase: time.Millisecond, BackoffCap: time.Millisecond,
			PauseCap: 10 * time.Millisecond,
		})
		emit(t, tr, "a", "good", "bad", "never")
		emit(t, tr, "a", "down")
		redistest.Eventually(t, "the observer to hear of all four", func() bool {
			return seen.look(func(o *observed) bool { return o.sent == 2 && len(o.classes) == 2 && len(o.outages) == 2 })
		})
		seen.look(func(o *observed) bool {
			slices.Sort(o.classes)
			if want := []string{"bad http_422 unreadable", "never exhausted no"}; !slices.Equal(o.classes, want) {
				t.Errorf("observed parked %q, want %q", o.classes, want)
			}
			if o.failed != 1 || o.returned == 0 || o.published != o.sent+o.refused || o.outages[0] || !o.outages[1] {
				t.Errorf("observed %+v", o)
			}
			return true
		})
		if c := counts(t, tr); int(c.Sent) != seen.sent || int(c.Parked) != len(seen.classes) {
			t.Errorf("the outbox counts %+v, the observer %+v", c, seen)
		}
	})
}

func TestObserverReceivesEventsParkedAfterACrash(t *testing.T) {
	t.Parallel()
	tr, seen := newTransactor(t, redistest.Shared(t).Client(t)), &observed{}
	emit(t, tr, "a", "poison")
	for _, slot := range tr.Keyspace().Slots() { // as a relay that crashes at once
		_, err := link.Of(tr).Scripts.Claim(t.Context(), link.Of(tr).Scripts.Shard(slot), shard.Claiming{Limit: 1, Lease: time.Millisecond, Attempts: 1})
		redistest.Must(t, err)
	}
	start(t, tr, newSink(), relay.Config{Observer: seen.observer(), Attempts: 1, NoInline: true, SweepInterval: 10 * time.Millisecond})
	redistest.Eventually(t, "the observer to hear of the event", func() bool {
		return seen.look(func(o *observed) bool { return len(o.classes) == 1 && o.classes[0] == " crashed " })
	})
}
