package amqp_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/luatx/luatx/contrib/amqp"
	"github.com/luatx/luatx/contrib/amqp/internal/rabbit"
	"github.com/luatx/luatx/message"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := rabbit.End(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// admin is a channel of the test's own.
func admin(t testing.TB, node *rabbit.Node) *amqp091.Channel {
	t.Helper()
	conn, err := amqp091.Dial(rabbit.URL(node.Addr()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	must(t, err)
	return ch
}

func unique(name string) string { return name + "-" + strings.ToLower(message.NewID()[:8]) }

// queue declares a durable queue.
func queue(t testing.TB, ch *amqp091.Channel, args amqp091.Table) string {
	t.Helper()
	name := unique("queue")
	_, err := ch.QueueDeclare(name, true, false, false, false, args)
	must(t, err)
	return name
}

func depth(t testing.TB, ch *amqp091.Channel, name string) int {
	t.Helper()
	q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
	must(t, err)
	return q.Messages
}

// arrivals collects what arrives in a queue.
type arrivals struct {
	mu  sync.Mutex
	raw []amqp091.Delivery
	got []*message.RawMessage
}

func collect(t testing.TB, node *rabbit.Node, queue string) *arrivals {
	t.Helper()
	deliveries, err := admin(t, node).Consume(queue, "", true, false, false, false, nil)
	must(t, err)
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

// ids counts what has arrived by id.
func (in *arrivals) ids() map[string]int {
	counts := map[string]int{}
	for _, msg := range in.received() {
		counts[msg.ID()]++
	}
	return counts
}

func event(id string, attrs ...string) *message.RawMessage {
	all := message.Attributes{"specversion": "1.0", "id": id, "source": "/shop", "type": "order.placed"}
	for i := 0; i < len(attrs); i += 2 {
		all[attrs[i]] = attrs[i+1]
	}
	return message.NewRaw([]byte(`{"n":1}`), all, nil)
}

func newPublisher(t testing.TB, cfg amqp.PublisherConfig) *amqp.Publisher {
	t.Helper()
	p, err := amqp.NewPublisher(cfg)
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return p
}
