package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/pipeline"
)

// The broker delivers a message twice. The handler runs once, and the outbox stream holds one event.
func Example() {
	ctx := context.Background()
	server, err := miniredis.Run() // or your own
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	router := message.NewRouter(message.PipeConfig{})
	err = errors.Join(
		router.Use(
			pipeline.SetNX(client, pipeline.SetNXConfig{}),
			pipeline.Middleware(client),
			pipeline.Outbox(pipeline.OutboxConfig{Stream: "events"}),
		),
		router.AddHandler("charge", nil, message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[int64]) ([]*message.Message, error) {
			err := luatx.CmdableFromContext(ctx, client).IncrBy(ctx, "charged", msg.Data).Err()
			return []*message.Message{message.New(msg.Data, message.Attributes{"type": "charged", "source": "/billing"}, nil)}, err
		})),
	)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		_, err := router.Process(ctx, message.New(int64(250), message.Attributes{
			"id": "payment-42", "source": "/shop", "type": "charge",
		}, message.NewAcking(nil, nil)))
		if err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(client.Get(ctx, "charged").Val(), "pence,", client.XLen(ctx, "events").Val(), "event")
	// Output: 250 pence, 1 event
}
