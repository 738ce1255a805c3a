package stream_test

import (
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// TestJourney is the common way of a message, on every kind of server.
func TestJourney(t *testing.T) {
	t.Parallel()
	servers := map[string]func(*testing.T) redis.UniversalClient{
		"server":  func(t *testing.T) redis.UniversalClient { t.Helper(); return redistest.Shared(t).Client(t) },
		"Cluster": func(t *testing.T) redis.UniversalClient { t.Helper(); return redistest.SharedCluster(t).Client(t) },
		"miniredis": func(t *testing.T) redis.UniversalClient {
			t.Helper()
			return redistest.Admin(t, miniredis.RunT(t).Addr())
		},
	}
	for name, client := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, client(t))
			sub := f.subscribe(t, f.config())
			pub, err := stream.NewPublisher(f.client, stream.PublisherConfig{Stream: f.key})
			must(t, err)
			for _, err := range pub.Send(t.Context(), order("1"), order("2"), order("3")) {
				must(t, err)
			}
			for _, id := range []string{"1", "2", "3"} {
				msg := sub.next(t)
				if msg.ID() != id || msg.Source() != "/shop" || msg.Type() != "order.placed" || string(msg.Data) != `{"order":`+id+`}` {
					t.Fatalf("got %v %s, want order %s", msg.Attributes, msg.Data, id)
				}
				source, ok := msg.InputSource()
				if !ok || source.Stream != f.key || source.Group != "shop" || source.Consumer == "" || source.Entry == "" {
					t.Fatalf("input source is %+v", source)
				}
				if id == "2" {
					msg.Nack(errors.New("not now"))
					continue
				}
				msg.Ack()
			}
			again := sub.next(t)
			if again.ID() != "2" {
				t.Fatalf("redelivered %s, want 2", again.ID())
			}
			again.Ack()
			if n := len(f.pending(t)); n != 0 {
				t.Fatalf("%d entries pending after all were acked", n)
			}
			if got, want := sub.Stats(), (stream.SubscriberStats{Delivered: 4, Redelivered: 1}); got != want {
				t.Fatalf("stats are %+v, want %+v", got, want)
			}
		})
	}
}

func order(id string) *message.RawMessage {
	return message.NewRaw([]byte(`{"order":`+id+`}`), message.Attributes{
		message.AttrID: id, message.AttrSource: "/shop", message.AttrType: "order.placed",
	}, nil)
}

func TestPlainEntriesHaveAnIdentity(t *testing.T) {
	t.Parallel()
	f := shared(t)
	id := f.add(t, "a")[0]
	msg := f.subscribe(t, f.config()).next(t)
	if msg.ID() != id || msg.Source() != f.key {
		t.Fatalf("id %q, source %q, want the entry's id %q and the stream's key", msg.ID(), msg.Source(), id)
	}
}

func TestCustomUnmarshalGetsAnIdentityToo(t *testing.T) {
	t.Parallel()
	f := shared(t)
	id := f.add(t, "a")[0]
	cfg := f.config()
	cfg.Unmarshal = func(string, map[string]any) (*message.RawMessage, error) { return &message.RawMessage{}, nil }
	if msg := f.subscribe(t, cfg).next(t); msg.ID() != id || msg.Source() != f.key {
		t.Fatalf("attributes are %v", msg.Attributes)
	}
}

func TestNeverMoreInFlightThanAskedFor(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for range 10 {
		f.add(t, "a", "b", "c")
	}
	cfg := f.config()
	cfg.MaxInFlight, cfg.BatchSize = 4, 3
	sub := f.subscribe(t, cfg)
	var open []*message.RawMessage
	settle := []func(*message.RawMessage) bool{
		func(m *message.RawMessage) bool { return m.Ack() },
		func(m *message.RawMessage) bool { return m.Release() },
		func(m *message.RawMessage) bool {
			source, _ := m.InputSource() // as a commit does
			return f.client.XAck(t.Context(), f.key, "shop", source.Entry).Err() == nil && m.Acknowledged()
		},
	}
	released := 0
	for n := range 30 {
		open = append(open, sub.next(t))
		if got := len(f.pending(t)) - released; got > 4 {
			t.Fatalf("%d in flight", got)
		}
		if len(open) == 4 {
			if !settle[n%3](open[0]) {
				t.Fatal("not settled")
			}
			if n%3 == 1 {
				released++
			}
			open = open[1:]
		}
	}
	if got := sub.Stats().Delivered; got != 30 {
		t.Fatalf("%d delivered, want 30", got)
	}
}

func TestStopsAndIsUsedAgain(t *testing.T) {
	t.Parallel()
	f := shared(t)
	sub := f.subscribe(t, f.config())
	if _, err := sub.Subscribe(t.Context()); !errors.Is(err, stream.ErrSubscribed) {
		t.Fatalf("error is %v, want ErrSubscribed", err)
	}
	sub.stop()
	f.add(t, "a")
	wantData(t, run(t, sub.Subscriber).next(t), "a")
}

func TestMessagesAreSettledAfterTheEnd(t *testing.T) {
	t.Parallel()
	f := shared(t)
	f.add(t, "a", "b")
	sub := f.subscribe(t, f.config())
	a, b := sub.next(t), sub.next(t)
	sub.stop()
	a.Ack()
	f.wantPending(t, 1)
	b.Nack(errors.New("too late"))
	f.wantPending(t, 1)
}

func TestUntakenMessagesGoBackToTheGroup(t *testing.T) {
	t.Parallel()
	f := shared(t)
	f.add(t, "a", "b")
	first := f.subscribe(t, f.config())
	f.wantPending(t, 2)
	eventually(t, func() bool { return len(first.ch) == 2 }, func() string { return "no messages in the channel" })
	second := f.subscribe(t, f.config()) // would wait an hour for those of a consumer that died
	first.cancel()
	wantData(t, second.next(t), "a")
	wantData(t, second.next(t), "b")
}

func TestConsumerWithADefaultNameLeaves(t *testing.T) {
	t.Parallel()
	f := shared(t)
	f.add(t, "a", "b")
	sub := f.subscribe(t, f.config())
	a, b := sub.next(t), sub.next(t)
	a.Ack()
	sub.stop()
	consumers := func() int {
		all, err := f.client.XInfoConsumers(t.Context(), f.key, "shop").Result()
		must(t, err)
		return len(all)
	}
	if n := consumers(); n != 1 {
		t.Fatalf("%d consumers while one has a message in flight, want 1", n)
	}
	b.Ack()
	if n := consumers(); n != 0 {
		t.Fatalf("%d consumers after the last ack, want 0", n)
	}
	sub = f.subscribe(t, f.config())
	f.add(t, "c")
	c := sub.next(t)
	sub.stop()
	c.Nack(nil)
	if n := consumers(); n != 1 {
		t.Fatalf("%d consumers, want the one with a nacked entry to stay", n)
	}
	f.wantPending(t, 1)
}

func TestNamedConsumerReadsAgainWhatItHad(t *testing.T) {
	t.Parallel()
	f := shared(t)
	f.add(t, "a", "b", "c")
	f.takeAs(t, "me", 2)
	cfg := f.config()
	cfg.Consumer, cfg.BatchSize = "me", 1
	sub := f.subscribe(t, cfg)
	for _, want := range []string{"a", "b", "c"} {
		msg := sub.next(t)
		wantData(t, msg, want)
		msg.Ack()
	}
	f.wantPending(t, 0)
}

func TestStartID(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ids := f.add(t, "a", "b")
	cfg := f.config()
	cfg.StartID = "$"
	sub := f.subscribe(t, cfg)
	f.add(t, "c")
	wantData(t, sub.next(t), "c")

	cfg.Group, cfg.StartID = "other", ids[0]
	wantData(t, f.subscribe(t, cfg).next(t), "b")
}

func TestSubscribeSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	f := shared(t)
	must(t, f.client.Set(t.Context(), f.key, "x", time.Minute).Err())
	for _, start := range []string{"0", "$"} {
		cfg := f.config()
		cfg.StartID = start
		sub, err := stream.NewSubscriber(f.client, cfg)
		must(t, err)
		if _, err := sub.Subscribe(t.Context()); err == nil || !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Errorf("StartID %s: error is %v, want WRONGTYPE", start, err)
		}
	}
}
