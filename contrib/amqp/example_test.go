package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/contrib/amqp"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

// A relay publishes committed events to an exchange of RabbitMQ.
func ExamplePublisher() {
	publisher, err := amqp.NewPublisher(amqp.PublisherConfig{URL: "amqp://guest:guest@127.0.0.1:1/", Exchange: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = publisher.Close() }()
	run := func(ctx context.Context, transactor *luatx.Transactor) error {
		r, err := relay.New(transactor, publisher, relay.Config{})
		if err != nil {
			return err
		}
		return r.Run(ctx)
	}
	_ = run

	// There is no broker at that port. That is an outage, which does not count as an attempt.
	placed := message.NewRaw([]byte(`{"total":5}`), message.Attributes{"id": "1", "source": "/shop", "type": "order.placed", "destination": "orders"}, nil)
	errs := publisher.Publish(context.Background(), []*message.RawMessage{placed})
	fmt.Println(errors.Is(errs[0], relay.ErrUnavailable))
	// Output: true
}

type PlaceOrder struct{ Total int }

// serve handles commands from a queue, each in a transaction, until ctx ends.
func serve(ctx context.Context, url string, client redis.UniversalClient, transactor *luatx.Transactor) error {
	subscriber, err := amqp.NewSubscriber(amqp.SubscriberConfig{URL: url, Queue: "orders", MaxInFlight: 64, DeadLetters: true})
	if err != nil {
		return err
	}
	orders, err := subscriber.Subscribe(ctx)
	if err != nil {
		return err
	}
	place := message.NewHandler(func(ctx context.Context, in *message.TypedMessage[PlaceOrder]) ([]*message.Message, error) {
		rdb := luatx.CmdableFromContext(ctx, client)
		return nil, luatx.Queued(rdb.HSet(ctx, "{"+in.Subject()+"}:order", "total", in.Data.Total))
	})
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{Concurrency: 64}})
	err = errors.Join(
		engine.Router().Use(luatx.Middleware(transactor), inbox.Middleware(inbox.Config{Scope: "orders"}), outbox.Middleware(outbox.Config{})),
		engine.AddHandler("place-order", nil, place),
		engine.AddRawInput("orders", nil, orders),
		engine.Run(ctx),
	)
	return errors.Join(err, subscriber.Wait(context.WithoutCancel(ctx)))
}

func ExampleSubscriber() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer func() { _ = client.Close() }()
	transactor, err := luatx.New(client, luatx.Config{Namespace: "orders"})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = serve(context.Background(), "amqp://guest:guest@127.0.0.1:1/", client, transactor)
	fmt.Println(errors.Is(err, syscall.ECONNREFUSED)) // nothing listens there
	// Output: true
}
