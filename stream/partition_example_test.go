package stream_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// Messages of one order are handled in their order, by whichever process holds its partition.
func ExamplePartitionedSubscriber() {
	server, err := miniredis.Run()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	keyspace := luatx.Partitions(4) // the Transactor's
	pub, err := stream.NewPartitionedPublisher(client, keyspace, stream.PublisherConfig{Stream: "orders"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, what := range []string{"placed", "paid", "shipped"} {
		msg := message.NewRaw(nil, message.Attributes{message.AttrType: what, message.AttrSubject: "order-7"}, nil)
		if errs := pub.Send(context.Background(), msg); errs != nil {
			fmt.Println(errs)
			return
		}
	}

	sub, err := stream.NewPartitionedSubscriber(client, keyspace, stream.PartitionedConfig{
		SubscriberConfig: stream.SubscriberConfig{Stream: "orders", Group: "billing", MaxDeliveries: 5, BlockTimeout: 50 * time.Millisecond},
	})
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
