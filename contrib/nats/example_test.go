package nats_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/luatx/luatx/contrib/nats"
	"github.com/luatx/luatx/message"
)

// exampleStream returns a JetStream with one stream on a server inside this process. For a real server, use natsgo.Connect(url).
func exampleStream(ctx context.Context) (js jetstream.JetStream, closing func(), err error) {
	dir, err := os.MkdirTemp("", "nats-")
	if err != nil {
		return nil, nil, err
	}
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		return nil, nil, err
	}
	srv.Start()
	srv.ReadyForConnections(time.Minute)
	nc, err := natsgo.Connect(srv.ClientURL(), natsgo.MaxReconnects(-1))
	if err != nil {
		return nil, nil, err
	}
	closing = func() {
		nc.Close()
		srv.Shutdown()
		srv.WaitForShutdown()
		_ = os.RemoveAll(dir)
	}
	if js, err = jetstream.New(nc); err == nil {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}})
	}
	return js, closing, err
}

// A stream stores an event once, even if it is published twice.
func ExamplePublisher() {
	ctx := context.Background()
	js, closing, err := exampleStream(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closing()

	publisher, err := nats.NewPublisher(js, nats.PublisherConfig{
		Acked: func(event *message.RawMessage, ack *jetstream.PubAck) {
			fmt.Println(event.ID(), "is", ack.Sequence, "of", ack.Stream, "- a duplicate:", ack.Duplicate)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// A relay calls Publish: relay.New(transactor, publisher, relay.Config{}).
	event := message.NewRaw([]byte(`{"total":5}`), message.Attributes{
		"id": "order-7", "source": "/shop", "type": "order.placed", "destination": "orders.placed",
	}, nil)
	for range 2 {
		fmt.Println(publisher.Publish(ctx, []*message.RawMessage{event}))
	}
	// Output:
	// order-7 is 1 of orders - a duplicate: false
	// [<nil>]
	// order-7 is 1 of orders - a duplicate: true
	// [<nil>]
}

// A router handles a durable consumer's messages. With a Transactor, add luatx.Middleware to it.
func ExampleSubscriber() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	js, closing, err := exampleStream(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closing()

	subscriber, err := nats.NewSubscriber(js, nats.SubscriberConfig{Stream: "orders", Durable: "billing"})
	if err != nil {
		fmt.Println(err)
		return
	}
	input, err := subscriber.Subscribe(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	engine := message.NewEngine(message.EngineConfig{})
	handler := func(_ context.Context, msg *message.TypedMessage[map[string]int]) ([]*message.Message, error) {
		fmt.Println(msg.Type(), "from", msg.Source(), msg.Data)
		if msg.Data["total"] == 6 {
			cancel()
		}
		return nil, nil // the message is acked
	}
	if err := engine.AddHandler("bill", nil, message.NewHandler(handler, message.Named(""))); err != nil {
		fmt.Println(err)
		return
	}
	if err := engine.AddRawInput("orders", nil, input); err != nil {
		fmt.Println(err)
		return
	}
	for _, data := range []string{`{"total":5}`, `{"total":6}`} {
		if _, err := js.Publish(ctx, "orders.placed", []byte(data)); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(engine.Run(ctx))
	// Output:
	// orders.placed from nats://orders map[total:5]
	// orders.placed from nats://orders map[total:6]
	// <nil>
}
