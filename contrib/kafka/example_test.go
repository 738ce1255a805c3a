package kafka_test

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/luatx/luatx/contrib/kafka"
	"github.com/luatx/luatx/message"
)

// Events with the same partition key go to one partition in order.
func ExamplePublisher() {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "orders")) // for a real cluster, use its addresses
	if err != nil {
		fmt.Println(err)
		return
	}
	defer broker.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	publisher, err := kafka.NewPublisher(client, kafka.PublisherConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// A relay calls Publish: relay.New(transactor, publisher, relay.Config{}).
	fmt.Println(publisher.Publish(context.Background(), []*message.RawMessage{
		message.NewRaw([]byte(`{"total":5}`), message.Attributes{
			"id": "order-7", "source": "/shop", "type": "order.placed", "destination": "orders", "partitionkey": "customer-1",
		}, nil),
	}))
	// Output: [<nil>]
}

// A router handles a consumer group's records. With a Transactor, add luatx.Middleware to it.
func ExampleSubscriber() {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders")) // for a real cluster, use its addresses
	if err != nil {
		fmt.Println(err)
		return
	}
	defer broker.Close()

	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := kgo.NewClient(append(subscriber.Options(),
		kgo.SeedBrokers(broker.ListenAddrs()...), kgo.ConsumerGroup("billing"), kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close() // after the engine has ended, so that other members take over
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	engine := message.NewEngine(message.EngineConfig{})
	handler := func(_ context.Context, msg *message.TypedMessage[map[string]int]) ([]*message.Message, error) {
		fmt.Println(msg.Type(), "of", msg.Subject(), msg.Data)
		if msg.Data["total"] == 6 {
			cancel()
		}
		return nil, nil // the message is acked
	}
	if err := engine.AddHandler("bill", nil, message.NewHandler(handler, message.Named("orders"))); err != nil {
		fmt.Println(err)
		return
	}
	if err := engine.AddSubscriber("orders", nil, subscriber); err != nil {
		fmt.Println(err)
		return
	}
	for _, value := range []string{`{"total":5}`, `{"total":6}`} {
		if err := client.ProduceSync(ctx, &kgo.Record{Topic: "orders", Key: []byte("customer-1"), Value: []byte(value)}).FirstErr(); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(engine.Run(ctx))
	// Output:
	// orders of customer-1 map[total:5]
	// orders of customer-1 map[total:6]
	// <nil>
}
