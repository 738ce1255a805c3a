package relay_test

import (
	"context"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

// A relay in the committing process publishes events right after their commit. It also publishes events that other
// processes left.
func ExampleRelay() {
	ctx, stop := context.WithCancel(context.Background())
	server, err := miniredis.Run() // or your own
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	transactor, err := luatx.New(client, luatx.Config{Namespace: "bank", Keyspace: luatx.Partitions(4)})
	if err != nil {
		log.Fatal(err)
	}
	settled := make(chan relay.Settled)
	r, err := relay.New(transactor, relay.Func(func(_ context.Context, event *message.RawMessage) error {
		fmt.Printf("published %s %s\n", event.ID(), event.Data)
		return nil // return an error to fail the attempt, or use relay.Unavailable or message.Permanent
	}, relay.FuncConfig{}), relay.Config{
		Observer: relay.Observer{Settled: func(_ context.Context, s relay.Settled) { settled <- s }},
	})
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()

	_, err = transactor.Transact(ctx, "account-7", func(tx *luatx.Tx) error {
		body, err := outbox.Encode(message.New(map[string]int{"pence": 250}, message.Attributes{
			"id": "payment-42", "source": "/bank", "type": "paid.in",
		}, nil))
		if err != nil {
			return err
		}
		return tx.Emit(luatx.Event{ID: "payment-42", Body: body})
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println((<-settled).Sent, "sent")
	stop()
	fmt.Println(<-done)
	// Output:
	// published payment-42 {"pence":250}
	// 1 sent
	// <nil>
}

// The receiver of the channel settles each event.
func ExampleChannel() {
	events := make(chan *message.RawMessage)
	publisher := relay.Channel(events, relay.ChannelConfig{}) // a relay calls it
	go func() {
		for event := range events {
			if event.Type() == "order.placed" {
				event.Ack()
			} else {
				event.Nack(fmt.Errorf("nobody waits for %s", event.Type())) // the attempt counts
			}
		}
	}()
	defer close(events)
	fmt.Println(publisher.Publish(context.Background(), []*message.RawMessage{
		message.NewRaw(nil, message.Attributes{"id": "1", "type": "order.placed"}, nil),
		message.NewRaw(nil, message.Attributes{"id": "2", "type": "order.printed"}, nil),
	}))
	// Output: [<nil> nobody waits for order.printed]
}
