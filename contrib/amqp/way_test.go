package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/contrib/amqp"
	"github.com/luatx/luatx/contrib/amqp/internal/rabbit"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

type order struct{ N int }

// TestWholeWay is a service: orders come from a queue, each in a transaction that counts it and emits an event, which a
// relay publishes to another queue. Every order is sent twice, some fail at first, and connections are cut all the while:
// each order counts once, and each event arrives.
func TestWholeWay(t *testing.T) {
	t.Parallel()
	node := rabbit.Shared(t)
	client := redistest.Single(t).Client(t)
	ns := redistest.Namespace(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: ns, Keyspace: luatx.Partitions(4).WithPrefix(ns)})
	must(t, err)
	ch, proxy := admin(t, node), startProxy(t, node.Addr())
	orders, placed := queue(t, ch, nil), queue(t, ch, nil)
	arrived := collect(t, node, placed)
	sub := newSubscriber(t, amqp.SubscriberConfig{
		URL: rabbit.URL(proxy.addr()), Queue: orders, NackBackoff: message.Backoff{Base: time.Millisecond, Max: 5 * time.Millisecond},
	})
	in, stop := subscribe(t, sub)

	const n = 200
	var failing, runs atomic.Int64
	counts := func(aggregate string) string {
		key, err := tr.Keyspace().Key(aggregate, "counts")
		must(t, err)
		return key
	}
	handler := message.NewHandler(func(ctx context.Context, in *message.TypedMessage[order]) ([]*message.Message, error) {
		runs.Add(1)
		if in.Data.N%10 == 0 && failing.Add(1)%2 == 1 {
			return nil, errors.New("not yet")
		}
		out := message.New(in.Data, message.Attributes{"type": "order.placed", "source": "/orders", "destination": placed, "subject": in.ID()}, nil)
		key := counts(in.Subject())
		return []*message.Message{out}, luatx.Queued(luatx.CmdableFromContext(ctx, client).HIncrBy(ctx, key, in.ID(), 1))
	})
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{Concurrency: 4, ErrorHandler: func(context.Context, *message.Message, error) {}}})
	must(t, errors.Join(
		engine.Router().Use(luatx.Middleware(tr), inbox.Middleware(inbox.Config{Scope: "orders"}), outbox.Middleware(outbox.Config{})),
		engine.AddHandler("place", nil, handler),
		engine.AddRawInput("orders", nil, in),
	))
	publisher := newPublisher(t, amqp.PublisherConfig{URL: rabbit.URL(proxy.addr())})
	sends, err := relay.New(tr, publisher, relay.Config{PauseCap: 50 * time.Millisecond})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- engine.Run(ctx) }()
	go func() { ended <- sends.Run(ctx) }()

	for i := range 2 * n { // each twice
		send(t, ch, orders, amqp091.Publishing{
			MessageId: fmt.Sprint("order-", i%n), Type: "order", ContentType: "application/json", Body: fmt.Appendf(nil, `{"N":%d}`, i%n),
			Headers: amqp091.Table{"subject": fmt.Sprint("a", i%n%3)},
		})
		if i%80 == 40 {
			proxy.cut()
		}
	}
	eventually(t, "all events to arrive and all orders to be settled", func() bool {
		subjects := map[string]bool{}
		for _, msg := range arrived.received() {
			subjects[msg.Subject()] = true
		}
		return len(subjects) == n && depth(t, ch, orders) == 0
	})
	stop()
	cancel()
	must(t, errors.Join(<-ended, <-ended))

	total, counted := 0, map[string]bool{}
	for a := range 3 {
		for id, count := range hash(t, client, counts(fmt.Sprint("a", a))) {
			total++
			counted[id] = true
			if count != "1" {
				t.Errorf("%s was counted %s times for a%d", id, count, a)
			}
		}
	}
	ids := map[string]bool{}
	for _, msg := range arrived.received() {
		ids[msg.ID()] = true
	}
	if total != n || len(ids) != total {
		t.Errorf("%d effects, %d different events, of %d orders in %d runs", total, len(ids), n, runs.Load())
	}
	for { // what was being delivered again when the service stopped has gone back to the queue
		left, ok, err := ch.Get(orders, true)
		must(t, err)
		if !ok {
			break
		}
		if !counted[left.MessageId] {
			t.Errorf("%s went back to the queue, and was never counted", left.MessageId)
		}
	}
	if sub.Stats().Connections < 2 {
		t.Error("the connection was never cut")
	}
}

func hash(t *testing.T, client *redis.Client, key string) map[string]string {
	t.Helper()
	all, err := client.HGetAll(t.Context(), key).Result()
	must(t, err)
	return all
}
