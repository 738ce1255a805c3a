package stream_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// A publisher and a subscriber of one stream.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	pub, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: "orders", MaxLen: 100_000})
	if err != nil {
		fmt.Println(err)
		return
	}
	placed := message.NewRaw([]byte(`{"total":5}`), message.Attributes{
		message.AttrID: "order-7", message.AttrSource: "/shop", message.AttrType: "order.placed",
	}, nil)
	if errs := pub.Send(context.Background(), placed); errs != nil {
		fmt.Println(errs)
		return
	}

	sub, err := stream.NewSubscriber(client, stream.SubscriberConfig{Stream: "orders", Group: "billing", BlockTimeout: 50 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	msgs, err := sub.Subscribe(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for msg := range msgs {
		fmt.Printf("%s %s %s\n", msg.ID(), msg.Type(), msg.Data)
		msg.Ack()
		cancel() // and the channel is closed
	}
	// Output: order-7 order.placed {"total":5}
}

// What cannot be handled goes to the dead letters, and comes back when its fault is mended.
func ExampleDeadLetters() {
	server, err := miniredis.Run()
	if err != nil {
		fmt.Println(err)
		return
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
		fmt.Println(err)
		return
	}
	msgs, err := sub.Subscribe(ctx)
	if err != nil {
		fmt.Println(err)
		return
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
