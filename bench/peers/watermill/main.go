// Command watermill is the service of the README with Watermill and its Redis Streams, for docs/comparison.md.
package main

import (
	"context"
	"encoding/json"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

// PlaceOrder is the payload of a command.
type PlaceOrder struct{ Customer, Product string }

// OrderPlaced is the payload of an event.
type OrderPlaced struct{ Customer, Product string }

type orders struct{ state *redis.Client }

func (o orders) place(msg *message.Message) ([]*message.Message, error) {
	var cmd PlaceOrder
	if err := json.Unmarshal(msg.Payload, &cmd); err != nil {
		return nil, err
	}
	if err := o.state.HIncrBy(msg.Context(), "bought:"+cmd.Customer, cmd.Product, 1).Err(); err != nil {
		return nil, err
	}
	event, err := json.Marshal(OrderPlaced(cmd))
	return []*message.Message{message.NewMessage(watermill.NewUUID(), event)}, err
}

func run(ctx context.Context) error {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")}) // defaults to localhost:6379
	defer client.Close()
	logger := watermill.NewSlogLogger(slog.Default())
	commands, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{Client: client, ConsumerGroup: "orders"}, logger)
	if err != nil {
		return err
	}
	events, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, logger)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	router.AddHandler("place-order", "orders", commands, "order-events", events, orders{client}.place)
	return router.Run(ctx)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Print(err)
	}
}
