package faults_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stream"
	"github.com/luatx/luatx/trigger"
)

// TestRejectedCommandDoesNotStopAnyWork rejects one of the first commands of each worker, another one each time. The worker
// continues, and all its work is done in the end.
func TestRejectedCommandDoesNotStopAnyWork(t *testing.T) {
	t.Parallel()
	for name, begin := range workers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := 1; n <= 16; n++ {
				t.Run(fmt.Sprint(n), func(t *testing.T) {
					t.Parallel()
					s := newShop(t)
					work := begin(t, s)
					refuser := rig.Refuse(s.client)
					refuser.Arm(n)
					ctx, stop := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					go func() {
						err := work.run(ctx)
						for errors.Is(err, rig.ErrRefused) { // a worker that cannot create its group at the start returns the error
							err = work.run(ctx)
						}
						ended <- err
					}()
					redistest.Eventually(t, "the work to be done", work.done)
					stop()
					assert.NoError(t, <-ended, "%s", refuser.Disarm())
				})
			}
		})
	}
}

// job is the work of a worker.
type job struct {
	run  func(context.Context) error
	done func() bool
}

// shop is a namespace with orders in a stream, events in the outbox, and a due timer.
type shop struct {
	client *redis.Client // of the worker
	tr     *luatx.Transactor
	probe  *redis.Client // of the test
	store  *outbox.Store
	timers *expiry.Store
	orders string

	mu   sync.Mutex
	seen map[string]bool
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{client: redistest.Shared(t).Client(t), seen: make(map[string]bool)}
	s.tr = rig.NewTransactor(t, s.client, func(c *luatx.Config) {
		c.Keyspace, c.NoWakeUps, c.Logger = luatx.Partitions(2).WithPrefix(c.Namespace), true, slog.New(slog.DiscardHandler)
	})
	s.probe, s.orders = redistest.Shared(t).Client(t), rig.Key(t, s.tr, "a", "orders")
	other, err := luatx.New(s.probe, s.tr.Config())
	redistest.Must(t, err)
	s.store = outbox.NewStore(other)
	timers, err := expiry.New(s.tr, expiry.Config{})
	redistest.Must(t, err)
	s.timers = timers
	return s
}

// see records work that was done at least once, and reports whether all of it is done.
func (s *shop) see(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[id] = true
}

func (s *shop) saw(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen) == n
}

// publish adds orders to the stream.
func (s *shop) publish(t *testing.T) {
	t.Helper()
	for id := range 3 {
		rig.Publish(t, s.client, s.orders, rig.Order(fmt.Sprint(id)))
	}
}

// subscriber returns a subscriber of the stream, which contains orders.
func (s *shop) subscriber(t *testing.T) *stream.Subscriber {
	t.Helper()
	s.publish(t)
	sub, err := stream.NewSubscriber(s.client, stream.SubscriberConfig{
		Stream: s.orders, Group: "g", BlockTimeout: 20 * time.Millisecond,
		ClaimInterval: 50 * time.Millisecond, MaxIdleTime: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	redistest.Must(t, err)
	return sub
}

// settled reports whether all orders were acknowledged.
func (s *shop) settled(t *testing.T, group string) bool {
	p, err := s.probe.XPending(t.Context(), s.orders, group).Result()
	return err == nil && p.Count == 0
}

var workers = map[string]func(*testing.T, *shop) job{
	"relay": func(t *testing.T, s *shop) job {
		body, err := outbox.Encode(message.New("x", message.Attributes{"id": "1", "source": "/shop", "type": "sold"}, nil))
		redistest.Must(t, err)
		_, err = s.tr.Enqueue(t.Context(), "a", luatx.Event{ID: "1", Body: body}, luatx.Event{ID: "2", Body: body, Key: "k"}, luatx.Event{ID: "3", Body: body, Key: "k"})
		redistest.Must(t, err)
		r, err := relay.New(s.tr, relay.Func(func(context.Context, *message.RawMessage) error { return nil }, relay.FuncConfig{}), relay.Config{
			SweepInterval: 10 * time.Millisecond, PauseCap: 20 * time.Millisecond, Lease: 500 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		})
		redistest.Must(t, err)
		return job{r.Run, func() bool {
			c, err := s.store.Counts(t.Context())
			return err == nil && c.Sent == 3 && c.Pending == 0 && c.Waiting == 0
		}}
	},
	"expiry": func(t *testing.T, s *shop) job {
		redistest.Must(t, s.timers.Record(t.Context(), "order", time.Now().Add(-time.Minute)))
		w, err := expiry.NewWorker(s.timers, expiry.WorkerConfig{
			SweepInterval: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
			Event: func(context.Context, expiry.Timer) (*message.Message, error) {
				return message.New(nil, message.Attributes{"source": "/shop", "type": "expired"}, nil), nil
			},
		})
		redistest.Must(t, err)
		return job{w.Run, func() bool {
			c, err := s.store.Counts(t.Context())
			return err == nil && c.Pending == 1
		}}
	},
	"subscriber": func(t *testing.T, s *shop) job {
		sub := s.subscriber(t)
		return job{func(ctx context.Context) error {
			messages, err := sub.Subscribe(ctx)
			if err != nil {
				return err
			}
			for m := range messages {
				s.see(m.ID())
				m.Ack()
			}
			return nil
		}, func() bool { return s.saw(3) && s.settled(t, "g") }}
	},
	"consumer": func(t *testing.T, s *shop) job {
		sub := s.subscriber(t)
		count := rig.Key(t, s.tr, "a", "count")
		router := rig.NewCounter(t, s.tr, s.client, count)
		return job{func(ctx context.Context) error { return sub.Consume(ctx, s.tr, router) }, func() bool {
			return s.probe.Get(t.Context(), count).Val() == "3" && s.settled(t, "g")
		}}
	},
	"trigger": func(t *testing.T, s *shop) job {
		s.publish(t)
		cfg := trigger.Config{
			Function: "f", Mode: trigger.ModeStream, Stream: s.orders, Group: "g", Connector: trigger.Connector{Client: s.client},
			BlockTimeout: 20 * time.Millisecond, ClaimInterval: 50 * time.Millisecond, MaxIdleTime: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
			Retry: trigger.Retry{Reconnect: message.Backoff{Max: 20 * time.Millisecond}},
			Run: func(_ context.Context, m *message.RawMessage) error {
				s.see(m.ID())
				return nil
			},
		}
		return job{func(ctx context.Context) error { return trigger.New(cfg).Run(ctx) }, func() bool { return s.saw(3) && s.settled(t, "g") }}
	},
}
