package nats_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/contrib/nats"
	"github.com/luatx/luatx/internal/test/brokertest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/relay"
)

// TestOrdersBecomeEventsOnceDespiteServerRestarts sends orders from NATS to a handler, whose commit marks them as applied,
// counts them and emits an event, and from the outbox by a relay back to NATS. Orders are sent twice, the server is stopped
// twice, and every effect is there once.
func TestOrdersBecomeEventsOnceDespiteServerRestarts(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		b := newBroker(t)
		b.stream("orders")
		out := b.stream("placed")
		const orders, customers = 60, 5
		for i := range 2 * orders {
			redistest.Must(t, b.order(t.Context(), i%orders, customers, fmt.Sprint("copy-", i)))
		}
		input, end := b.subscribe("orders", func(c *nats.SubscriberConfig) {
			c.MaxInFlight, c.Consumer.AckWait = 8, 500*time.Millisecond // an ack may be lost with the server
		})
		service := brokertest.NewOrders(t, client, "placed.orders", customers)
		stop := service.Serve(t, input, b.publisher(), relay.Config{PauseCap: 100 * time.Millisecond, SweepInterval: 200 * time.Millisecond})
		defer func() { end(); stop() }()
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
		counted, twice := service.Counted(t)
		in, _ := b.subscribe("placed")
		seen := map[string]bool{}
		for range orders {
			msg := next(t, in)
			seen[string(msg.Data)] = true
			msg.Ack()
		}
		if info, err := out.Info(t.Context()); err != nil || info.State.Msgs != orders || len(seen) != orders || counted != orders || twice > 0 {
			t.Errorf("%d counted, %d twice, %d events of %d orders, %+v %v", counted, twice, len(seen), orders, info.State, err)
		}
	})
}

// order publishes an order as a separate event with a different message id, so that NATS stores both copies.
func (b *broker) order(ctx context.Context, n, customers int, id string) error {
	_, err := b.js.PublishMsg(ctx, &natsgo.Msg{Subject: "orders.new", Data: fmt.Appendf(nil, `{"Order":"order-%d"}`, n), Header: natsgo.Header{
		"ce-specversion": {"1.0"}, "ce-id": {fmt.Sprint("order-", n)}, "ce-source": {"/shop"}, "ce-type": {"place.order"},
		"ce-subject": {fmt.Sprint("customer-", n%customers)}, "Nats-Msg-Id": {id},
	}})
	return err
}
