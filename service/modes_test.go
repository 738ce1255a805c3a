package service_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/service"
	"github.com/luatx/luatx/stack"
	"github.com/luatx/luatx/stream"
)

type (
	addEntry   struct{ Entry string } // a command
	entryAdded struct{ Entry string } // an event
)

// ledger is an adapter that knows no mode.
func ledger(client redis.Cmdable, keys luatx.Keyspace) service.Handler {
	return service.Command("add-entry", func(ctx context.Context, cmd addEntry) ([]entryAdded, error) {
		msg, _ := message.MessageFromContext(ctx)
		key, err := keys.Key(msg.Subject(), "entries")
		if err != nil {
			return nil, err
		}
		added := luatx.CmdableFromContext(ctx, client).HIncrBy(ctx, key, cmd.Entry, 1)
		return []entryAdded{{cmd.Entry}}, luatx.Queued(added)
	})
}

// run runs a service until stop, or the end of the test. Nothing is logged at level Warn or above.
func run(t *testing.T, client redis.UniversalClient, cfg service.Config, handlers ...service.Handler) (s *service.Service, stop func()) {
	t.Helper()
	lines := &rig.Lines{}
	cfg.Logger = lines.Logger()
	s, err := service.New(client, cfg, handlers...)
	redistest.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if lines.Count("level=WARN")+lines.Count("level=ERROR") > 0 {
			t.Errorf("the service logged:\n%s", lines)
		}
	}
	t.Cleanup(stop)
	return s, stop
}

func TestEveryModeAppliesEachMessageOnce(t *testing.T) {
	t.Parallel()
	const partitions, messages, accounts = 4, 50, 5
	for name, mode := range map[string]service.Mode{"scripted": service.Scripted, "pipelined": service.Pipelined} {
		for _, parts := range []int{0, partitions} {
			t.Run(fmt.Sprint(name, " ", parts), func(t *testing.T) {
				t.Parallel()
				client, ns := redistest.Shared(t).Client(t), redistest.Namespace(t)
				keys := luatx.OwnTags().WithPrefix(ns)
				if parts > 0 {
					keys = luatx.Partitions(parts).WithPrefix(ns)
				}
				publish, in := stream.NewPublisher, ns+"-in"
				cfg := service.Config{Namespace: ns, Stream: in, Partitions: parts, Events: ns + "-out", Mode: mode, Transactor: luatx.Config{Keyspace: keys}}
				cfg.Subscriber.BlockTimeout = 100 * time.Millisecond
				if parts > 0 {
					publish = func(client redis.UniversalClient, cfg stream.PublisherConfig) (*stream.Publisher, error) {
						return stream.NewPartitionedPublisher(client, keys, cfg)
					}
				}
				publisher, err := publish(client, stream.PublisherConfig{Stream: in})
				redistest.Must(t, err)
				for i := range 2 * messages { // each of them twice
					id := fmt.Sprint(i % messages)
					errs := publisher.Send(t.Context(), message.NewRaw(fmt.Appendf(nil, `{"Entry":%q}`, id), message.Attributes{
						"id": id, "source": "/test", "type": "add.entry", "subject": fmt.Sprint("account-", i%accounts),
					}, nil))
					redistest.Must(t, errors.Join(errs...))
				}
				_, stop := run(t, client, cfg, ledger(client, keys))
				redistest.Eventually(t, "the events are published", func() bool { return client.XLen(t.Context(), cfg.Events).Val() >= messages })
				streams := append(stream.PartitionKeys(keys, in), in)[:max(parts, 1)]
				redistest.Eventually(t, "the messages are acknowledged", func() bool { return unread(t, client, streams, ns) == 0 })
				stop()
				entries := 0
				for i := range accounts {
					key, err := keys.Key(fmt.Sprint("account-", i), "entries")
					redistest.Must(t, err)
					for entry, times := range client.HGetAll(t.Context(), key).Val() {
						if entries++; times != "1" {
							t.Errorf("entry %s was added %s times", entry, times)
						}
					}
				}
				if events := client.XLen(t.Context(), cfg.Events).Val(); entries != messages || events != messages {
					t.Errorf("%d entries and %d events, want %d", entries, events, messages)
				}
			})
		}
	}
}

// unread is how many entries of the streams a group has not acknowledged.
func unread(t *testing.T, client redis.UniversalClient, streams []string, group string) (n int64) {
	t.Helper()
	for _, key := range streams {
		groups, err := client.XInfoGroups(t.Context(), key).Result()
		if err != nil {
			continue // it is not made yet, and so empty
		}
		for _, g := range groups {
			if n += g.Pending; g.LastDeliveredID != client.XInfoStream(t.Context(), key).Val().LastGeneratedID {
				n++
			}
		}
	}
	return n
}

func TestTimersBecomeEvents(t *testing.T) {
	t.Parallel()
	client, ns := redistest.Shared(t).Client(t), redistest.Namespace(t)
	keys := luatx.Partitions(2).WithPrefix(ns)
	transactor, err := luatx.New(client, luatx.Config{Namespace: ns, Keyspace: keys})
	redistest.Must(t, err)
	store, err := expiry.New(transactor, expiry.Config{})
	redistest.Must(t, err)
	cfg := service.Config{Stream: ns + "-in", Given: service.Given{Transactor: transactor, Timers: store}}
	cfg.Timers = expiry.WorkerConfig{SweepInterval: 10 * time.Millisecond, Event: func(_ context.Context, timer expiry.Timer) (*message.Message, error) {
		return message.New(nil, message.Attributes{"type": "expired", "source": "/s", "subject": timer.Subject, "destination": ns + "-out"}, nil), nil
	}}
	run(t, client, cfg, ledger(client, keys))
	redistest.Must(t, store.Record(t.Context(), "seat-1", time.Now()))
	redistest.Eventually(t, "the event is published to its destination", func() bool { return client.XLen(t.Context(), ns+"-out").Val() == 1 })
}

func TestAdminIsServedOnlyToAuthorizedRequests(t *testing.T) {
	t.Parallel()
	client, ns := redistest.Shared(t).Client(t), redistest.Namespace(t)
	authorize, err := httpapi.Tokens(map[string]httpapi.Identity{"0123456789abcdef": {Name: "ada", May: httpapi.MayView}})
	redistest.Must(t, err)
	keys := luatx.Partitions(2).WithPrefix(ns)
	cfg := service.Config{Namespace: ns, Stream: ns + "-in", Partitions: 2, Transactor: luatx.Config{Keyspace: keys}}
	cfg.Admin = &httpapi.Config{Authorize: authorize, Logger: slog.New(slog.DiscardHandler)}
	s, _ := run(t, client, cfg, ledger(client, keys))
	for token, want := range map[string]int{"": http.StatusUnauthorized, "0123456789abcdef": http.StatusOK} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/openapi.json", nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		if s.ServeHTTP(w, r); w.Code != want {
			t.Errorf("GET /api/openapi.json with the token %q: %d, want %d", token, w.Code, want)
		}
	}
}

func TestRelayElsewhereLeavesEventsInTheOutbox(t *testing.T) {
	t.Parallel()
	client, ns := redistest.Shared(t).Client(t), redistest.Namespace(t)
	keys := luatx.Partitions(2).WithPrefix(ns)
	cfg := service.Config{Namespace: ns, Stream: ns + "-in", Events: ns + "-out", Transactor: luatx.Config{Keyspace: keys}, Stack: stack.Config{RelayElsewhere: true}}
	publisher, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: ns + "-in"})
	redistest.Must(t, err)
	redistest.Must(t, errors.Join(publisher.Send(t.Context(), message.NewRaw([]byte(`{}`), message.Attributes{"id": "1", "source": "/s", "type": "add.entry", "subject": "a"}, nil))...))
	_, stop := run(t, client, cfg, ledger(client, keys))
	redistest.Eventually(t, "the message is acknowledged", func() bool { return unread(t, client, []string{ns + "-in"}, ns) == 0 })
	stop()
	if n := client.XLen(t.Context(), ns+"-out").Val(); n != 0 {
		t.Errorf("%d events are published", n)
	}
	cfg.Stack.RelayElsewhere = false
	run(t, client, cfg, ledger(client, keys))
	redistest.Eventually(t, "the service with a relay publishes", func() bool { return client.XLen(t.Context(), ns+"-out").Val() == 1 })
}
