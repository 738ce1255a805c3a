package stream_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

func TestMessageIsReadNackedRedeliveredAndAcked(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client)
		sub := f.subscribe(t, f.config())
		pub, err := stream.NewPublisher(f.client, stream.PublisherConfig{Stream: f.key})
		redistest.Must(t, err)
		for _, err := range pub.Send(t.Context(), order("1"), order("2"), order("3")) {
			redistest.Must(t, err)
		}
		var second *message.RawMessage
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
				second = msg
				continue
			}
			msg.Ack()
		}
		second.Nack(errors.New("not now"))
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

func order(id string) *message.RawMessage {
	return message.NewRaw([]byte(`{"order":`+id+`}`), message.Attributes{
		message.AttrID: id, message.AttrSource: "/shop", message.AttrType: "order.placed",
	}, nil)
}

func TestEntryWithoutIdentityGetsItsIDAndTheStreamsKey(t *testing.T) {
	t.Parallel()
	for _, unmarshal := range []func(string, map[string]any) (*message.RawMessage, error){
		nil, func(string, map[string]any) (*message.RawMessage, error) { return &message.RawMessage{}, nil },
	} {
		f := shared(t)
		id := f.add(t, "a")[0]
		cfg := f.config()
		cfg.Unmarshal = unmarshal
		if msg := f.subscribe(t, cfg).next(t); msg.ID() != id || msg.Source() != f.key {
			t.Errorf("attributes are %v, want the entry's id %q and the stream's key", msg.Attributes, id)
		}
	}
}

func TestInFlightNeverExceedsMaxInFlight(t *testing.T) {
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

func TestSubscriberCanBeUsedAgainAfterItStops(t *testing.T) {
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

func TestConsumerWithADefaultNameLeavesItsGroup(t *testing.T) {
	t.Parallel()
	f := shared(t)
	f.add(t, "a", "b")
	sub := f.subscribe(t, f.config())
	a, b := sub.next(t), sub.next(t)
	a.Ack()
	sub.stop()
	consumers := func() int {
		all, err := f.client.XInfoConsumers(t.Context(), f.key, "shop").Result()
		redistest.Must(t, err)
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

func TestNamedConsumerReadsItsPendingEntriesFirst(t *testing.T) {
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

func TestGroupStartsBehindStartID(t *testing.T) {
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

func TestSubscribeReturnsErrorsOfTheServer(t *testing.T) {
	t.Parallel()
	f := shared(t)
	redistest.Must(t, f.client.Set(t.Context(), f.key, "x", time.Minute).Err())
	for _, start := range []string{"0", "$"} {
		cfg := f.config()
		cfg.StartID = start
		sub, err := stream.NewSubscriber(f.client, cfg)
		redistest.Must(t, err)
		if _, err := sub.Subscribe(t.Context()); err == nil || !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Errorf("StartID %s: error is %v, want WRONGTYPE", start, err)
		}
	}
}
