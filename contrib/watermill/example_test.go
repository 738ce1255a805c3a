package watermill_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wm "github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	luatxwm "github.com/luatx/luatx/contrib/watermill"
	"github.com/luatx/luatx/message"
)

// A Watermill handler in a transaction: the message takes effect once, and the messages that the handler returns become events.
func ExampleMiddleware() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	transactor, err := luatx.New(client, luatx.Config{Namespace: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	placed, err := transactor.Keyspace().Key("ada", "placed")
	if err != nil {
		log.Fatal(err)
	}

	once, err := luatxwm.Middleware(transactor, luatxwm.MiddlewareConfig{})
	if err != nil {
		log.Fatal(err)
	}
	placeOrder := once(func(msg *wm.Message) ([]*wm.Message, error) { // in a service: router.AddMiddleware(once)
		ctx := msg.Context()
		err := luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, placed))
		return []*wm.Message{wm.NewMessage("placed-"+msg.UUID, msg.Payload)}, err
	})
	for range 2 { // delivered twice
		order := wm.NewMessage("order-7", []byte(`{"total":5}`))
		order.Metadata.Set("subject", "ada")
		outputs, err := placeOrder(order)
		fmt.Println(len(outputs), err) // the outputs are in the outbox
	}
	fmt.Println("placed:", client.Get(context.Background(), placed).Val())
	// Output:
	// 0 <nil>
	// 0 <nil>
	// placed: 1
}

// A relay that uses any Publisher of Watermill: relay.New(transactor, publisher, relay.Config{}).
func ExampleRelay() {
	ctx := context.Background()
	broker := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 1}, watermill.NopLogger{})
	defer func() { _ = broker.Close() }()
	messages, err := broker.Subscribe(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}

	publisher, err := luatxwm.Relay(broker, luatxwm.RelayConfig{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(publisher.Publish(ctx, []*message.RawMessage{
		message.NewRaw([]byte(`{"total":5}`), message.Attributes{"id": "order-7", "source": "/shop", "type": "placed", "destination": "orders"}, nil),
		message.NewRaw([]byte(`{"total":6}`), message.Attributes{"id": "order-8", "source": "/shop", "type": "placed"}, nil),
	}))
	msg := <-messages
	fmt.Println(msg.UUID, msg.Metadata.Get("type"), string(msg.Payload))
	msg.Ack()
	// Output:
	// [<nil> watermill: the event has no destination; set a destination or RelayConfig.Topic]
	// order-7 placed {"total":5}
}

// Redis Streams as a Publisher and a Subscriber of Watermill. A nacked message is delivered again before those behind it.
func ExampleSubscriber() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()

	publisher, err := luatxwm.NewPublisher(client, luatxwm.PublisherConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = publisher.Close() }()
	subscriber, err := luatxwm.NewSubscriber(client, luatxwm.SubscriberConfig{
		Group: "billing", BlockTimeout: 50 * time.Millisecond, NackBackoff: message.Backoff{Base: time.Millisecond},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = subscriber.Close() }()
	messages, err := subscriber.Subscribe(context.Background(), "orders")
	if err != nil {
		log.Fatal(err)
	}
	if err := publisher.Publish("orders", wm.NewMessage("order-7", []byte("7")), wm.NewMessage("order-8", []byte("8"))); err != nil {
		log.Fatal(err)
	}
	for n := range 3 {
		msg := <-messages
		fmt.Println(msg.UUID)
		if n == 0 {
			msg.Nack()
		} else {
			msg.Ack()
		}
	}
	// Output:
	// order-7
	// order-7
	// order-8
}
