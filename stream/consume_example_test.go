package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// Consume reads batches, runs the handlers of a batch side by side, and commits what they did, acks included, in one
// script.
func ExampleSubscriber_Consume() {
	server, err := miniredis.Run() // or your own
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	keys := luatx.Partitions(1)
	transactor, err := luatx.New(client, luatx.Config{Namespace: "book", Keyspace: keys})
	if err != nil {
		log.Fatal(err)
	}
	orders := keys.TagKey(keys.Tags()[0], "orders") // shares the slot of the business keys

	type Place struct{ Order string }
	entered, err := keys.Key("book", "entered")
	if err != nil {
		log.Fatal(err)
	}
	engine := message.NewEngine(message.EngineConfig{})
	err = errors.Join(
		engine.Router().Use(luatx.Middleware(transactor), inbox.Middleware(inbox.Config{})),
		engine.AddHandler("place", nil, message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[Place]) ([]*message.Message, error) {
			return nil, luatx.CmdableFromContext(ctx, client).SAdd(ctx, entered, msg.Data.Order).Err()
		})),
	)
	if err != nil {
		log.Fatal(err)
	}

	pub, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: orders})
	if err != nil {
		log.Fatal(err)
	}
	for i := range 3 {
		order := message.NewRaw(fmt.Appendf(nil, `{"Order":"order-%d"}`, i), message.Attributes{
			"id": fmt.Sprint(i), "source": "/shop", "type": "place", "subject": "book",
		}, nil)
		if errs := pub.Send(context.Background(), order); errs != nil {
			log.Fatal(errs)
		}
	}
	sub, err := stream.NewSubscriber(client, stream.SubscriberConfig{
		Stream: orders, Group: "book", BatchSize: 64, BlockTimeout: 10 * time.Millisecond,
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	handled := make(chan error, 3)
	done := make(chan error)
	go func() {
		done <- sub.Consume(ctx, transactor, stream.ProcessFunc(func(ctx context.Context, msg *message.RawMessage) error {
			_, err := engine.Process(ctx, msg)
			handled <- err
			return err
		}))
	}()
	fmt.Println(<-handled, <-handled, <-handled)
	stop()
	fmt.Println(<-done)
	fmt.Println(client.SCard(context.Background(), entered).Val(), "orders,",
		client.XPending(context.Background(), orders, "book").Val().Count, "pending")
	// Output:
	// <nil> <nil> <nil>
	// <nil>
	// 3 orders, 0 pending
}

// A publisher whose entries are compressed; a subscriber with the same codecs opens them.
func ExamplePublisher() {
	server, err := miniredis.Run() // or your own
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	pub, err := stream.NewPublisher(client, stream.PublisherConfig{
		StreamFor: func(msg *message.RawMessage) (string, error) { return "to:" + msg.Destination(), nil },
		MaxLen:    1_000_000,
		Codecs:    []stream.Codec{stream.Gzip{}},
	})
	if err != nil {
		log.Fatal(err)
	}
	errs := pub.Send(context.Background(), message.NewRaw(bytes.Repeat([]byte("lamp "), 100), message.Attributes{
		"id": "order-7", "source": "/shop", "type": "order.placed", "destination": "billing",
	}, nil))
	fmt.Println(errs == nil)
	for _, entry := range client.XRange(context.Background(), "to:billing", "-", "+").Val() {
		fmt.Println(entry.Values["ce_id"], entry.Values["ce_dataencoding"])
	}
	// Output:
	// true
	// order-7 gzip
}
