package watermill_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill"
	wm "github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	luatxwm "github.com/luatx/luatx/contrib/watermill"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// TestOrdersBecomeEventsOnAWatermillRouter is a service on Watermill's router. Orders arrive in a stream, each in a transaction
// that counts it, emits an event and acknowledges the order. A relay publishes the events with Watermill's Publisher.
func TestOrdersBecomeEventsOnAWatermillRouter(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ns := redistest.Namespace(t)
		tr, err := luatx.New(client, luatx.Config{Namespace: ns, Keyspace: luatx.Partitions(1).WithPrefix(ns)})
		redistest.Must(t, err)
		in, out := tr.Keyspace().TagKey(tr.Keyspace().Tags()[0], "orders"), ns+":placed"
		counts, err := tr.Keyspace().Key("a", "counts")
		redistest.Must(t, err)
		pub, err := luatxwm.NewPublisher(client, luatxwm.PublisherConfig{})
		redistest.Must(t, err)

		const orders = 30
		for n := range 2 * orders { // each order twice, with the same UUID
			msg := wm.NewMessage(fmt.Sprint("order-", n%orders), []byte(`{"n":1}`))
			msg.Metadata.Set("subject", "a")
			msg.Metadata.Set("Trace-ID", "t1")
			redistest.Must(t, pub.Publish(in, msg))
		}
		var failed atomic.Int64
		stop := serve(t, client, tr, in, out, func(msg *wm.Message) ([]*wm.Message, error) {
			if msg.UUID == "order-7" && failed.Add(1) < 3 {
				return nil, errors.New("not yet")
			}
			if msg.Metadata.Get("Trace-ID") != "t1" {
				t.Errorf("metadata %v", msg.Metadata)
			}
			ctx := msg.Context()
			placed := wm.NewMessage("placed-"+msg.UUID, msg.Payload)
			return []*wm.Message{placed}, luatx.Queued(luatx.CmdableFromContext(ctx, client).HIncrBy(ctx, counts, msg.UUID, 1))
		})
		defer stop()
		sends, err := relay.New(tr, publisher(t, pub), relay.Config{})
		redistest.Must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- sends.Run(ctx) }()
		defer func() { cancel(); redistest.Must(t, <-ended) }()

		redistest.Eventually(t, "all events to be published and all orders acknowledged", func() bool {
			pending, err := client.XPending(t.Context(), in, "service").Result()
			return err == nil && pending.Count == 0 && client.XLen(t.Context(), out).Val() == orders &&
				len(client.HGetAll(t.Context(), counts).Val()) == orders
		})
		for uuid, n := range client.HGetAll(t.Context(), counts).Val() {
			if n != "1" {
				t.Errorf("%s was counted %s times", uuid, n)
			}
		}
		sub, err := luatxwm.NewSubscriber(client, luatxwm.SubscriberConfig{Group: "readers", BlockTimeout: 50 * time.Millisecond})
		redistest.Must(t, err)
		defer func() { redistest.Must(t, sub.Close()) }()
		events, err := sub.Subscribe(redistest.Soon(t), out)
		redistest.Must(t, err)
		seen := map[string]bool{}
		for range orders {
			msg := <-events
			seen[msg.UUID] = true
			if string(msg.Payload) != `{"n":1}` {
				t.Errorf("%s holds %q", msg.UUID, msg.Payload)
			}
			msg.Ack()
		}
		if !seen["placed-order-7"] || len(seen) != orders {
			t.Errorf("%d events: %v", len(seen), seen)
		}
	})
}

func publisher(t *testing.T, pub wm.Publisher) relay.Publisher {
	t.Helper()
	p, err := luatxwm.Relay(pub, luatxwm.RelayConfig{})
	redistest.Must(t, err)
	return p
}

// serve runs Watermill's router with one handler in transactions.
func serve(t *testing.T, client redis.UniversalClient, tr *luatx.Transactor, in, out string, handle wm.HandlerFunc) (stop func()) {
	t.Helper()
	sub, err := luatxwm.NewSubscriber(client, luatxwm.SubscriberConfig{
		Group: "service", BlockTimeout: 50 * time.Millisecond, NackBackoff: message.Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond},
	})
	redistest.Must(t, err)
	once, err := luatxwm.Middleware(tr, luatxwm.MiddlewareConfig{})
	redistest.Must(t, err)
	router, err := wm.NewRouter(wm.RouterConfig{}, watermill.NopLogger{})
	redistest.Must(t, err)
	router.AddMiddleware(once)
	router.AddHandler("place", in, sub, out, nothing{}, handle)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.WithoutCancel(t.Context())) }()
	return func() { redistest.Must(t, errors.Join(router.Close(), sub.Close(), <-ended)) }
}

// nothing is the Publisher of a handler whose outputs are events. It must not be called.
type nothing struct{}

func (nothing) Publish(topic string, _ ...*wm.Message) error {
	return fmt.Errorf("published to %q beside the transaction", topic)
}
func (nothing) Close() error { return nil }

func TestRelayMapsErrorsOfAFailingPublisher(t *testing.T) {
	t.Parallel()
	gone, refused := errors.New("gone"), errors.New("refused")
	pub := &scripted{answers: map[string]error{"b": gone, "c": refused}}
	p, err := luatxwm.Relay(pub, luatxwm.RelayConfig{Unavailable: func(err error) bool { return errors.Is(err, gone) }})
	redistest.Must(t, err)
	event := func(id, to, lane string) *message.RawMessage {
		attrs := message.Attributes{"id": id, "type": "t", "source": "/s"}
		if to != "" {
			attrs["destination"] = to
		}
		if lane != "" {
			attrs["partitionkey"] = lane
		}
		return message.NewRaw([]byte("x"), attrs, nil)
	}
	errs := p.Publish(t.Context(), []*message.RawMessage{
		event("1", "a", ""), event("2", "b", ""), event("3", "c", "l"), event("4", "a", "l"), event("5", "", ""), event("6", "a", ""),
	})
	switch {
	case errs[0] != nil, errs[5] != nil:
		t.Errorf("%v", errs)
	case !errors.Is(errs[1], relay.ErrUnavailable) || !errors.Is(errs[1], gone):
		t.Errorf("unavailable: %v", errs[1])
	case !errors.Is(errs[2], refused) || errors.Is(errs[2], relay.ErrUnavailable):
		t.Errorf("refused: %v", errs[2])
	case !errors.Is(errs[3], relay.ErrLater):
		t.Errorf("behind the refused one of its lane: %v", errs[3])
	case errs[4] == nil:
		t.Error("without a topic it was sent")
	}
	if got := fmt.Sprint(pub.sent); got != "[1 6]" {
		t.Errorf("sent %s", got)
	}
	if _, err := luatxwm.Relay(nil, luatxwm.RelayConfig{}); err == nil {
		t.Error("no Publisher is none")
	}
}

func TestRelaySendsNothingAndReportsNoOutageAfterItsContextHasEnded(t *testing.T) {
	t.Parallel()
	failure, stopped := errors.New("connection closed"), errors.New("stopped")
	for name, c := range map[string]struct {
		err  error
		want []error
	}{
		"sent":   {nil, []error{nil, stopped, stopped}},
		"failed": {failure, []error{failure, stopped, stopped}},
	} {
		ctx, stop := context.WithCancelCause(t.Context())
		pub := &scripted{answers: map[string]error{"a": c.err}, publish: func() { stop(stopped) }}
		p, err := luatxwm.Relay(pub, luatxwm.RelayConfig{Unavailable: func(error) bool { return true }})
		redistest.Must(t, err)
		events := make([]*message.RawMessage, 3)
		for i := range events {
			events[i] = message.NewRaw([]byte("x"), message.Attributes{"id": fmt.Sprint(i), "type": "t", "source": "/s", "destination": "a"}, nil)
		}
		for i, err := range p.Publish(ctx, events) {
			if want := c.want[i]; !errors.Is(err, want) || want != nil && (!errors.Is(err, relay.ErrLater) || errors.Is(err, relay.ErrUnavailable)) {
				t.Errorf("%s: event %d: %v", name, i, err)
			}
		}
	}
}

// scripted is a Publisher with a result for each topic. It calls publish, if it is set, for each message.
type scripted struct {
	answers map[string]error
	publish func()
	sent    []string
}

func (s *scripted) Publish(topic string, messages ...*wm.Message) error {
	if s.publish != nil {
		s.publish()
	}
	if err := s.answers[topic]; err != nil {
		return err
	}
	for _, m := range messages {
		s.sent = append(s.sent, m.UUID)
	}
	return nil
}
func (s *scripted) Close() error { return nil }

func FuzzMessageIsReadFromAStreamAsItWasWritten(f *testing.F) {
	f.Add("id", "type", "order.placed")
	f.Add("", "Trace-ID", "ümlaut")
	f.Add("x", "time", "not a time")
	f.Add("x", "data", "")
	f.Add("x", "watermillmetadata", "{}")
	f.Fuzz(func(t *testing.T, uuid, name, value string) {
		msg := wm.NewMessage(uuid, []byte("payload"))
		msg.Metadata.Set(name, value)
		raw, err := luatxwm.ToRaw(msg, "/source")
		if !utf8.ValidString(uuid) || !utf8.ValidString(name) || !utf8.ValidString(value) {
			if !message.IsPermanent(err) {
				t.Errorf("what is not UTF-8: %v", err)
			}
			return
		}
		redistest.Must(t, err)
		back, err := luatxwm.FromRaw(raw)
		redistest.Must(t, err)
		if got, ok := back.Metadata[name]; back.UUID != uuid || !ok || got != value {
			t.Errorf("%q: %q came back as %q, UUID %q", name, value, got, back.UUID)
		}
	})
}
