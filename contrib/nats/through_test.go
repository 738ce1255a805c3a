package nats_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/contrib/nats"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stack"
)

type orderPlaced struct {
	Order string
}

// TestThrough sends orders all the way: from NATS to a handler, whose commit marks them as applied, counts them and
// emits an event, and from the outbox by a relay to NATS. Orders come twice, the server is stopped twice in between, and
// every effect is there once.
func TestThrough(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		b := newBroker(t)
		b.stream("orders")
		out := b.stream("placed")
		ns := redistest.Namespace(t)
		tr, err := luatx.New(client, luatx.Config{Namespace: ns, Keyspace: luatx.Partitions(4).WithPrefix(ns)})
		must(t, err)
		const orders, customers = 60, 5
		for i := range 2 * orders {
			must(t, b.order(t.Context(), i%orders, customers, fmt.Sprint("copy-", i)))
		}
		stop := serve(t, b, tr, client)
		defer stop()
		for n := range 2 {
			redistest.Eventually(t, "some orders to arrive", func() bool {
				info, err := out.Info(t.Context())
				return err == nil && info.State.Msgs >= uint64(5+10*n) //nolint:gosec // small
			})
			b.restart()
		}
		redistest.Eventually(t, "all orders to be handled and all events published", func() bool {
			unacked, waiting := b.pending("orders")
			info, err := out.Info(t.Context())
			return unacked == 0 && waiting == 0 && err == nil && info.State.Msgs >= orders
		})
		counted := 0
		for c := range customers {
			key, err := tr.Keyspace().Key(fmt.Sprint("customer-", c), "orders")
			must(t, err)
			for order, n := range client.HGetAll(t.Context(), key).Val() {
				if counted++; n != "1" {
					t.Errorf("%s was counted %s times", order, n)
				}
			}
		}
		in, _ := b.subscribe("placed")
		seen := map[string]bool{}
		for range orders {
			msg := next(t, in)
			seen[string(msg.Data)] = true
			msg.Ack()
		}
		if info, err := out.Info(t.Context()); err != nil || info.State.Msgs != orders || len(seen) != orders || counted != orders {
			t.Errorf("%d counted, %d events of %d orders, %+v %v", counted, len(seen), orders, info.State, err)
		}
	})
}

// order publishes an order as its own event under a message id of NATS's, so that NATS keeps both copies.
func (b *broker) order(ctx context.Context, n, customers int, id string) error {
	_, err := b.js.PublishMsg(ctx, &natsgo.Msg{Subject: "orders.new", Data: fmt.Appendf(nil, `{"Order":"order-%d"}`, n), Header: natsgo.Header{
		"ce-specversion": {"1.0"}, "ce-id": {fmt.Sprint("order-", n)}, "ce-source": {"/shop"}, "ce-type": {"place.order"},
		"ce-subject": {fmt.Sprint("customer-", n%customers)}, "Nats-Msg-Id": {id},
	}})
	return err
}

// serve runs the service and its relay.
func serve(t *testing.T, b *broker, tr *luatx.Transactor, client redis.UniversalClient) (stop func()) {
	t.Helper()
	mw, err := stack.Scripted(tr, stack.Config{})
	must(t, err)
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{Concurrency: 4, ErrorHandler: func(context.Context, *message.Message, error) {}}})
	must(t, engine.Router().Use(mw))
	failed := make(chan bool, 1)
	failed <- true
	must(t, engine.AddHandler("place", nil, message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[orderPlaced]) ([]*message.Message, error) {
		select {
		case <-failed:
			return nil, errors.New("the first one fails")
		default:
		}
		key, err := tr.Keyspace().Key(msg.Subject(), "orders")
		if err != nil {
			return nil, err
		}
		placed := message.New(msg.Data, message.Attributes{"source": "/service", "type": "order.placed", "destination": "placed.orders"}, nil)
		return []*message.Message{placed}, luatx.Queued(luatx.CmdableFromContext(ctx, client).HIncrBy(ctx, key, msg.Data.Order, 1))
	}, message.Named("place.order"))))
	in, end := b.subscribe("orders", func(c *nats.SubscriberConfig) {
		c.MaxInFlight, c.Consumer.AckWait = 8, 500*time.Millisecond // an ack may be lost with the server
	})
	must(t, engine.AddRawInput("orders", nil, in))
	sends, err := relay.New(tr, b.publisher(), relay.Config{PauseCap: 100 * time.Millisecond, SweepInterval: 200 * time.Millisecond})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- engine.Run(ctx) }()
	go func() { ended <- sends.Run(ctx) }()
	return func() {
		cancel()
		end()
		must(t, errors.Join(<-ended, <-ended))
	}
}
