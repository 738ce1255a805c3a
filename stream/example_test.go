package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// A publisher and a subscriber share a stream.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	pub, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: "orders", MaxLen: 100_000})
	if err != nil {
		log.Fatal(err)
	}
	placed := message.NewRaw([]byte(`{"total":5}`), message.Attributes{
		message.AttrID: "order-7", message.AttrSource: "/shop", message.AttrType: "order.placed",
	}, nil)
	if errs := pub.Send(context.Background(), placed); errs != nil {
		log.Fatal(errs)
	}

	sub, err := stream.NewSubscriber(client, stream.SubscriberConfig{Stream: "orders", Group: "billing", BlockTimeout: 50 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	msgs, err := sub.Subscribe(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for msg := range msgs {
		fmt.Printf("%s %s %s\n", msg.ID(), msg.Type(), msg.Data)
		msg.Ack()
		cancel() // and the channel is closed
	}
	// Output: order-7 order.placed {"total":5}
}

// A message that cannot be processed becomes a dead letter, and is put back when the cause is fixed.
func ExampleDeadLetters() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client.XAdd(ctx, &redis.XAddArgs{Stream: "orders", Values: []any{"type", "order.placed", "data", "{}"}})

	sub, err := stream.NewSubscriber(client, stream.SubscriberConfig{
		Stream: "orders", Group: "billing", MaxDeliveries: 2, BlockTimeout: 50 * time.Millisecond,
		NackBackoff: message.Backoff{Base: time.Millisecond}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	msgs, err := sub.Subscribe(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		msg := <-msgs
		msg.Nack(errors.New("no such customer"))
	}

	key := stream.DeadLetterKey("orders")
	for dead, err := range stream.DeadLetters(ctx, client, key) {
		fmt.Println(dead.Stream, dead.Group, dead.Deliveries, dead.Reason, err)
	}
	n, err := stream.PutBackAll(ctx, client, key)
	fmt.Println(n, err)
	msg := <-msgs
	fmt.Println(msg.Type(), msg.Ack())
	// Output:
	// orders billing 2 no such customer <nil>
	// 1 <nil>
	// order.placed true
}

// Consume reads batches, runs the handlers of a batch concurrently, and commits their results, including acks, in one
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

// A publisher compresses its entries, and a subscriber with the same codecs decompresses them.
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

// The messages of one order are handled in order, by the process that holds the partition.
func ExamplePartitionedSubscriber() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	keyspace := luatx.Partitions(4) // the same as the Transactor's
	pub, err := stream.NewPartitionedPublisher(client, keyspace, stream.PublisherConfig{Stream: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	for _, what := range []string{"placed", "paid", "shipped"} {
		msg := message.NewRaw(nil, message.Attributes{message.AttrType: what, message.AttrSubject: "order-7"}, nil)
		if errs := pub.Send(context.Background(), msg); errs != nil {
			log.Fatal(errs)
		}
	}

	sub, err := stream.NewPartitionedSubscriber(client, keyspace, stream.PartitionedConfig{
		SubscriberConfig: stream.SubscriberConfig{Stream: "orders", Group: "billing", MaxDeliveries: 5, BlockTimeout: 50 * time.Millisecond},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	msgs, err := sub.Subscribe(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for msg := range msgs {
		fmt.Println(msg.Subject(), msg.Type())
		msg.Ack()
		if msg.Type() == "shipped" {
			cancel() // and the channel is closed
		}
	}
	// Output:
	// order-7 placed
	// order-7 paid
	// order-7 shipped
}
