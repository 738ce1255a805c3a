package amqp_test

import (
	"fmt"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/luatx/luatx/contrib/amqp"
	"github.com/luatx/luatx/contrib/amqp/internal/rabbit"
	"github.com/luatx/luatx/internal/test/brokertest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// TestOrdersBecomeEventsOnceDespiteFaults is a service. Orders arrive in a queue, each in a transaction that counts it and
// emits an event, which a relay publishes to another queue. Every order is sent twice, some handlers fail, and connections are
// cut.
func TestOrdersBecomeEventsOnceDespiteFaults(t *testing.T) {
	t.Parallel()
	node := rabbit.Shared(t)
	ch, proxy := admin(t, node), startProxy(t, node.Addr())
	orders, placed := queue(t, ch, nil), queue(t, ch, nil)
	arrived := collect(t, node, placed)
	sub := newSubscriber(t, amqp.SubscriberConfig{
		URL: rabbit.URL(proxy.addr()), Queue: orders, NackBackoff: message.Backoff{Base: time.Millisecond, Max: 5 * time.Millisecond},
	})
	in, stop := subscribe(t, sub)

	const n, customers = 200, 3
	service := brokertest.NewOrders(t, redistest.Single(t).Client(t), placed, customers)
	publisher := newPublisher(t, amqp.PublisherConfig{URL: rabbit.URL(proxy.addr())})
	end := service.Serve(t, in, publisher, relay.Config{PauseCap: 50 * time.Millisecond})
	for i := range 2 * n { // each order twice
		order := fmt.Sprint("order-", i%n)
		send(t, ch, orders, amqp091.Publishing{
			MessageId: order, Type: "order", ContentType: "application/json", Body: fmt.Appendf(nil, `{"Order":%q}`, order),
			Headers: amqp091.Table{"subject": fmt.Sprint("customer-", i%n%customers)},
		})
		if i%80 == 40 {
			proxy.cut()
		}
	}
	eventually(t, "all events to arrive and all orders to be settled", func() bool {
		of := map[string]bool{}
		for _, msg := range arrived.received() {
			of[string(msg.Data)] = true
		}
		return len(of) == n && depth(t, ch, orders) == 0
	})
	stop()
	end()
	if counted, twice := service.Counted(t); counted != n || twice > 0 || len(arrived.ids()) != n {
		t.Errorf("%d orders are counted, %d twice; %d different events, of %d orders", counted, twice, len(arrived.ids()), n)
	}
	if sub.Stats().Connections < 2 {
		t.Error("the connection was never cut")
	}
}
