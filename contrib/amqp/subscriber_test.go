package amqp_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/luatx/luatx/contrib/amqp"
	"github.com/luatx/luatx/contrib/amqp/internal/rabbit"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

func newSubscriber(t testing.TB, cfg amqp.SubscriberConfig) *amqp.Subscriber {
	t.Helper()
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Reconnect = message.Backoff{Base: time.Millisecond, Max: 20 * time.Millisecond}
	sub, err := amqp.NewSubscriber(cfg)
	redistest.Must(t, err)
	return sub
}

// subscribe begins a subscription. The function stop ends it and waits for its end.
func subscribe(t testing.TB, sub *amqp.Subscriber) (in <-chan *message.RawMessage, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	in, err := sub.Subscribe(ctx)
	redistest.Must(t, err)
	stop = sync.OnceFunc(func() {
		cancel()
		redistest.Must(t, sub.Wait(soon(t)))
	})
	t.Cleanup(cancel)
	return in, stop
}

func send(t testing.TB, ch *amqp091.Channel, queue string, m amqp091.Publishing) {
	t.Helper()
	redistest.Must(t, ch.PublishWithContext(t.Context(), "", queue, true, false, m))
}

func TestSubscriberSettlesMessages(t *testing.T) {
	t.Parallel()
	node := rabbit.Shared(t)
	ch := admin(t, node)
	dead := queue(t, ch, nil)
	q := queue(t, ch, amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
	sub := newSubscriber(t, amqp.SubscriberConfig{URL: rabbit.URL(node.Addr()), Queue: q, MaxInFlight: 2, DeadLetters: true})
	in, stop := subscribe(t, sub)
	defer stop()
	if _, err := sub.Subscribe(t.Context()); !errors.Is(err, amqp.ErrSubscribed) {
		t.Errorf("subscribed twice: %v", err)
	}

	send(t, ch, q, amqp091.Publishing{MessageId: "1", Type: "order.placed", Body: []byte("one"), Headers: amqp091.Table{"subject": "order-1", "X-Note": "no"}})
	msg := next(t, in)
	if msg.ID() != "1" || msg.Source() != q || msg.Type() != "order.placed" || string(msg.Data) != "one" || msg.Subject() != "order-1" {
		t.Errorf("%v %q", msg.Attributes, msg.Data)
	}
	if d, ok := amqp.DeliveryFromContext(msg.Context(t.Context())); !ok || d.RoutingKey != q {
		t.Errorf("the delivery is %v", d)
	}
	began := time.Now()
	msg.Nack(message.RetryAfter(errors.New("not yet"), 200*time.Millisecond))
	msg = next(t, in)
	if waited := time.Since(began); waited < 200*time.Millisecond || msg.ID() != "1" {
		t.Errorf("%s came again after %v", msg.ID(), waited)
	}
	msg.Nack(errors.New("once more"))
	next(t, in).Ack()

	// At most MaxInFlight messages are out at the same time.
	for i := range 4 {
		send(t, ch, q, amqp091.Publishing{MessageId: fmt.Sprint("n", i)})
	}
	first, second := next(t, in), next(t, in)
	select {
	case extra := <-in:
		t.Errorf("%s came beyond MaxInFlight", extra.ID())
	case <-time.After(50 * time.Millisecond):
	}
	first.Ack()
	second.Acknowledged() // as a commit would do
	next(t, in).Release()
	next(t, in).Ack()
	next(t, in).Ack()

	// Messages with permanent errors or without an identity go to the dead letters.
	send(t, ch, q, amqp091.Publishing{MessageId: "poison"})
	next(t, in).Nack(message.Permanent(errors.New("never")))
	send(t, ch, q, amqp091.Publishing{Body: []byte("nobody")})
	send(t, ch, q, amqp091.Publishing{MessageId: "v2", Headers: amqp091.Table{"cloudEvents_specversion": "2.0"}})
	eventually(t, "the dead letters", func() bool { return depth(t, ch, dead) == 3 })
	stop()
	if got := depth(t, ch, q); got != 0 {
		t.Errorf("%d messages are left", got)
	}
	if s := sub.Stats(); s.Rejected != 3 || s.Malformed != 2 || s.Requeued != 3 || s.Lost != 0 || s.Connections != 1 {
		t.Errorf("%+v", s)
	}
}

func TestRefusedMessageWithoutDeadLettersIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	node := rabbit.Shared(t)
	ch := admin(t, node)
	q := queue(t, ch, nil)
	var log rig.Lines
	sub := newSubscriber(t, amqp.SubscriberConfig{
		URL: rabbit.URL(node.Addr()), Queue: q, RefusedHold: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	in, stop := subscribe(t, sub)
	defer stop()
	send(t, ch, q, amqp091.Publishing{MessageId: "poison"})
	next(t, in).Nack(message.Permanent(errors.New("never")))
	next(t, in).Nack(message.Permanent(errors.New("never")))
	next(t, in).Ack()
	send(t, ch, q, amqp091.Publishing{Body: []byte("nobody")})
	eventually(t, "what has no identity to come again", func() bool { return sub.Stats().Malformed >= 3 })
	stop()
	if got := depth(t, ch, q); got != 1 {
		t.Errorf("%d messages are left", got)
	}
	if !strings.Contains(log.String(), amqp.ErrNoIdentity.Error()) {
		t.Errorf("the log does not report it: %s", log.String())
	}
}

// TestUnsettledMessagesAreDeliveredAgainAfterAReconnect also checks that settlements of the old deliveries have no effect.
func TestUnsettledMessagesAreDeliveredAgainAfterAReconnect(t *testing.T) {
	t.Parallel()
	node := rabbit.Shared(t)
	ch, proxy := admin(t, node), startProxy(t, node.Addr())
	name := unique("declared")
	sub := newSubscriber(t, amqp.SubscriberConfig{
		URL: rabbit.URL(proxy.addr()), Queue: name, MaxInFlight: 5,
		Declare: func(ch *amqp091.Channel) error {
			_, err := ch.QueueDeclare(name, true, false, false, false, nil)
			return err
		},
	})
	in, stop := subscribe(t, sub)
	defer stop()
	for i := range 10 {
		send(t, ch, name, amqp091.Publishing{MessageId: fmt.Sprint(i)})
	}
	old := next(t, in)
	held := next(t, in)
	held.Nack(message.RetryAfter(errors.New("later"), time.Hour))
	mend := proxy.outage()
	mend()
	eventually(t, "another connection", func() bool { return sub.Stats().Connections >= 2 })
	old.Ack()
	seen := map[string]bool{}
	for len(seen) < 10 {
		msg := next(t, in)
		seen[msg.ID()] = true
		msg.Ack()
	}
	if s := sub.Stats(); s.Lost != 1 {
		t.Errorf("%+v", s)
	}

	// The queue is deleted and declared again.
	_, err := ch.QueueDelete(name, false, false, false)
	redistest.Must(t, err)
	eventually(t, "the queue to be declared again", func() bool { return sub.Stats().Connections >= 3 })
	send(t, ch, name, amqp091.Publishing{MessageId: "anew"})
	next(t, in).Ack()
}

func TestStopRequeuesUnreceivedMessagesAndWaitsForOthers(t *testing.T) {
	t.Parallel()
	node := rabbit.Shared(t)
	ch := admin(t, node)
	q := queue(t, ch, nil)
	for i := range 10 {
		send(t, ch, q, amqp091.Publishing{MessageId: fmt.Sprint(i)})
	}
	sub := newSubscriber(t, amqp.SubscriberConfig{URL: rabbit.URL(node.Addr()), Queue: q, MaxInFlight: 5})
	ctx, cancel := context.WithCancel(t.Context())
	in, err := sub.Subscribe(ctx)
	redistest.Must(t, err)
	acked, nacked, held := next(t, in), next(t, in), next(t, in)
	held.Nack(message.RetryAfter(errors.New("later"), time.Hour))
	cancel()
	eventually(t, "the rest to go back", func() bool { return depth(t, ch, q) == 8 })
	if _, err := sub.Subscribe(t.Context()); !errors.Is(err, amqp.ErrSubscribed) {
		t.Errorf("there is a subscription: %v", err)
	}
	acked.Ack()
	nacked.Nack(errors.New("stopped"))
	redistest.Must(t, sub.Wait(soon(t)))
	if got := depth(t, ch, q); got != 9 {
		t.Errorf("%d messages are left", got)
	}
	for range in {
		t.Error("a message came after the end")
	}

	// A message that is never settled is finally requeued.
	sub = newSubscriber(t, amqp.SubscriberConfig{URL: rabbit.URL(node.Addr()), Queue: q, SettleTimeout: 10 * time.Millisecond})
	in, stop := subscribe(t, sub)
	lost := next(t, in)
	stop()
	eventually(t, "all to be back", func() bool { return depth(t, ch, q) == 9 })
	lost.Ack()
}

func TestSubscriberRejectsInvalidConfig(t *testing.T) {
	t.Parallel()
	for _, cfg := range []amqp.SubscriberConfig{
		{},
		{Queue: "q"},
		{URL: "amqp://x"},
		{URL: "amqp://x", Queue: "q", MaxInFlight: 70_000},
		{URL: "amqp://x", Queue: "q", MaxHold: -1},
		{URL: "amqp://x", Queue: "q", Arguments: amqp091.Table{"x": struct{}{}}},
		{URL: "amqp://x", Queue: "q", Reconnect: message.Backoff{Base: -1}},
	} {
		if _, err := amqp.NewSubscriber(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
	node := rabbit.Shared(t)
	sub := newSubscriber(t, amqp.SubscriberConfig{URL: rabbit.URL(node.Addr()), Queue: "no-such-queue"})
	if _, err := sub.Subscribe(t.Context()); err == nil {
		t.Error("a queue that does not exist is consumed")
	}
	redistest.Must(t, sub.Wait(soon(t)))
}
