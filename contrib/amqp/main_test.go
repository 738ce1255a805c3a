package amqp_test

import (
	"strings"
	"sync"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/luatx/luatx/contrib/amqp"
	"github.com/luatx/luatx/contrib/amqp/internal/rabbit"
	"github.com/luatx/luatx/internal/test/brokertest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

func TestMain(m *testing.M) {
	redistest.AtEnd(rabbit.End)
	redistest.Main(m)
}

var (
	eventually = redistest.Eventually
	soon       = redistest.Soon
	event      = brokertest.Event
	next       = brokertest.Next
)

// admin returns a separate channel for the test.
func admin(t testing.TB, node *rabbit.Node) *amqp091.Channel {
	t.Helper()
	conn, err := amqp091.Dial(rabbit.URL(node.Addr()))
	redistest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	redistest.Must(t, err)
	return ch
}

func unique(name string) string { return name + "-" + strings.ToLower(message.NewID()[:8]) }

func queue(t testing.TB, ch *amqp091.Channel, args amqp091.Table) string {
	t.Helper()
	name := unique("queue")
	_, err := ch.QueueDeclare(name, true, false, false, false, args)
	redistest.Must(t, err)
	return name
}

func depth(t testing.TB, ch *amqp091.Channel, name string) int {
	t.Helper()
	q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
	redistest.Must(t, err)
	return q.Messages
}

// arrivals collects the messages that arrive in a queue.
type arrivals struct {
	mu  sync.Mutex
	raw []amqp091.Delivery
	got []*message.RawMessage
}

func collect(t testing.TB, node *rabbit.Node, queue string) *arrivals {
	t.Helper()
	deliveries, err := admin(t, node).Consume(queue, "", true, false, false, false, nil)
	redistest.Must(t, err)
	in := &arrivals{}
	go func() {
		for d := range deliveries {
			msg, err := amqp.Unmarshal(&d)
			if err != nil {
				t.Error(err)
				continue
			}
			in.mu.Lock()
			in.raw, in.got = append(in.raw, d), append(in.got, msg)
			in.mu.Unlock()
		}
	}()
	return in
}

func (in *arrivals) received() []*message.RawMessage {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]*message.RawMessage(nil), in.got...)
}

// ids returns the number of arrivals by id.
func (in *arrivals) ids() map[string]int {
	counts := map[string]int{}
	for _, msg := range in.received() {
		counts[msg.ID()]++
	}
	return counts
}

func newPublisher(t testing.TB, cfg amqp.PublisherConfig) *amqp.Publisher {
	t.Helper()
	p, err := amqp.NewPublisher(cfg)
	redistest.Must(t, err)
	t.Cleanup(func() { redistest.Must(t, p.Close()) })
	return p
}
