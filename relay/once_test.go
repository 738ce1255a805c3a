package relay_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stream"
)

// once returns the publisher of a relay that is killed between a publish and its settlement.
func (c child) once(broker *redis.Client) (relay.PublisherFunc, error) {
	events, err := stream.NewPublisher(broker, stream.PublisherConfig{
		Stream: c.Stream,
		Marshal: func(msg *message.RawMessage) ([]any, error) { // as published reads it
			return []any{"id", msg.ID(), "data", msg.Data}, nil
		},
	})
	if err != nil {
		return nil, err
	}
	streams := relay.Streams(events)
	return func(ctx context.Context, events []*message.RawMessage) []error {
		errs := streams.Publish(ctx, events)
		<-time.After(rand.N(2*c.Takes + 1)) // time to be killed
		return errs
	}, nil
}

func TestEventsOfKilledRelaysAreInTheStreamExactlyOnce(t *testing.T) {
	t.Parallel()
	redistest.NeedCommandsOf(t, 8, 6)
	p := plan{events: 4_000, lanes: 100, kills: 12}
	if os.Getenv("LUATX_VERIFY") != "" {
		p = plan{events: 100_000, lanes: 400, kills: 120} // a kill every half second
	}
	server, broker := redistest.Shared(t), redistest.Single(t, redistest.Own())
	c := child{
		Addrs: []string{server.Addr()}, Namespace: redistest.Namespace(t), Partitions: 32, Broker: broker.Addr(), Stream: "published",
		Attempts: 100, Takes: 50 * time.Millisecond, Once: true,
	}
	tr, err := c.transactor(server.Client(t))
	redistest.Must(t, err)
	f := &feeder{tr: tr, lanes: p.lanes, next: make([]int, p.lanes)}
	crew := newTeam(t, c, 4)
	p.run(t, f, crew, broker.Admin(t), c.down())
	store := outbox.NewStore(tr)
	waitFor(t, time.Minute, "everything to be sent", func() bool {
		counts, err := store.Counts(t.Context())
		return err == nil && counts.Sent == int64(f.sum)
	})
	crew.end()
	ids, again := published(t, broker.Admin(t), c.Stream)
	info, err := broker.Admin(t).XInfoStream(t.Context(), c.Stream).Result()
	redistest.Must(t, err)
	t.Logf("%d events, %d kills: %d publishes repeated, %d events more than once in the stream", f.sum, p.kills, info.IIDsDuplicates, again)
	f.wantAll(t, ids)
	if again != 0 || info.Length != int64(f.sum) {
		t.Errorf("%d events more than once, %d entries for %d events", again, info.Length, f.sum)
	}
	if info.IIDsDuplicates == 0 {
		t.Error("no relay was killed between a publish and its settlement: the test shows nothing")
	}
}

// newStream returns a Transactor, and a publisher to a stream with the returned key.
func newStream(t *testing.T, keyspace luatx.Keyspace) (redis.UniversalClient, *luatx.Transactor, relay.Publisher, string) {
	t.Helper()
	client := redistest.Shared(t).Client(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: redistest.Namespace(t), Keyspace: keyspace})
	redistest.Must(t, err)
	key := redistest.Tag(t)
	publisher, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: key})
	redistest.Must(t, err)
	return client, tr, relay.Streams(publisher), key
}

// sentTwice publishes an event, prevents its settlement, and returns the length of the stream after the second publish.
func sentTwice(t *testing.T, cfg relay.Config, change func(*message.RawMessage) *message.RawMessage) int64 {
	t.Helper()
	client, tr, streams, key := newStream(t, luatx.Partitions(1))
	times := make(chan int, 10)
	cfg.NoInline, cfg.Attempts, cfg.BackoffBase, cfg.SweepInterval = true, 5, time.Millisecond, 10*time.Millisecond
	commit(t, tr, "a", luatx.Event{ID: "e", Body: bodyOf("e")})
	count := 0
	start(t, tr, relay.PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
		count++ // the relay has one event, so calls do not overlap
		sent := make([]*message.RawMessage, len(events))
		for i, event := range events {
			sent[i] = change(event)
		}
		if errs := streams.Publish(ctx, sent); errs != nil {
			return errs
		}
		times <- count
		if count == 1 {
			return []error{fmt.Errorf("the settlement is lost")}
		}
		return nil
	}), cfg)
	redistest.Eventually(t, "the event to be published twice", func() bool { return len(times) == 2 })
	return client.XLen(t.Context(), key).Val()
}

func TestEventPublishedAgainIsOneEntry(t *testing.T) {
	t.Parallel()
	redistest.NeedCommandsOf(t, 8, 6)
	same := func(event *message.RawMessage) *message.RawMessage { return event }
	for name, c := range map[string]struct {
		cfg    relay.Config
		change func(*message.RawMessage) *message.RawMessage
		want   int64
	}{
		"usually":                        {relay.Config{}, same, 1},
		"not if it may be replayed":      {relay.Config{KeepSentBodies: true}, same, 2},
		"not if sent ids are forgotten":  {relay.Config{SentRetention: -1}, same, 2},
		"not if ids are forgotten early": {relay.Config{SentRetention: time.Minute}, same, 2},
		"not if it was copied": {relay.Config{}, func(event *message.RawMessage) *message.RawMessage {
			return message.Copy(event, event.Data)
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if n := sentTwice(t, c.cfg, c.change); n != c.want {
				t.Errorf("%d entries, want %d", n, c.want)
			}
		})
	}
}

func TestReplayedEventReachesTheStreamAgain(t *testing.T) {
	t.Parallel()
	client, tr, streams, key := newStream(t, luatx.Partitions(1))
	start(t, tr, streams, relay.Config{KeepSentBodies: true, SweepInterval: 10 * time.Millisecond})
	commit(t, tr, "a", luatx.Event{ID: "e", Body: bodyOf("e")})
	redistest.Eventually(t, "the event to be sent", func() bool { return counts(t, tr).Sent == 1 })
	redistest.Eventually(t, "the event to be replayed", func() bool {
		result, err := outbox.NewStore(tr).As("alice").Replay(t.Context(), time.Now().Add(-time.Hour), outbox.Filter{}, outbox.ReplayOptions{})
		redistest.Must(t, err)
		return result.Replayed == 1
	})
	redistest.Eventually(t, "the event to be in the stream again", func() bool { return client.XLen(t.Context(), key).Val() == 2 })
}

func TestShardsAreDifferentProducersOfTheSameID(t *testing.T) {
	t.Parallel()
	client, tr, streams, key := newStream(t, luatx.OwnTags())
	start(t, tr, streams, relay.Config{})
	for _, aggregate := range []string{"a", "b"} {
		commit(t, tr, aggregate, luatx.Event{ID: "e", Body: bodyOf("e")})
	}
	redistest.Eventually(t, "both events to be in the stream", func() bool { return client.XLen(t.Context(), key).Val() == 2 })
}
