package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/message"
)

// A message is delivered three times. Precheck avoids the second and third run of the handler; Middleware guarantees one effect.
func ExampleMiddleware() {
	ctx := context.Background()
	server, err := miniredis.Run() // or your own
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	transactor, err := luatx.New(client, luatx.Config{Namespace: "billing"})
	if err != nil {
		log.Fatal(err)
	}

	type Charge struct{ Pence int64 }
	router := message.NewRouter(message.PipeConfig{})
	err = errors.Join(
		router.Use(luatx.Middleware(transactor), inbox.Middleware(inbox.Config{}), inbox.Precheck()),
		router.AddHandler("charge", nil, message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[Charge]) ([]*message.Message, error) {
			fmt.Println("the handler runs")
			charged := luatx.CmdableFromContext(ctx, client).IncrBy(ctx, "{account-7}:charged", msg.Data.Pence)
			return nil, luatx.Queued(charged)
		})),
	)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		_, err := router.Process(ctx, message.New(Charge{250}, message.Attributes{
			"id": "payment-42", "source": "/shop", "type": "charge", "subject": "account-7",
		}, message.NewAcking(func() { fmt.Println("acked") }, nil)))
		if err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(client.Get(ctx, "{account-7}:charged").Val())
	// Output:
	// the handler runs
	// acked
	// acked
	// acked
	// 250
}

// A partition is delivered again from its beginning, because the offsets of its consumer were lost. The position in Redis decides.
func ExamplePosition() {
	ctx := context.Background()
	server, err := miniredis.Run() // or your own
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	transactor, err := luatx.New(client, luatx.Config{Namespace: "billing"})
	if err != nil {
		log.Fatal(err)
	}

	type Charge struct{ Pence int64 }
	router := message.NewRouter(message.PipeConfig{})
	err = errors.Join(
		router.Use(luatx.Middleware(transactor), inbox.Position(inbox.PositionConfig{MaxAttempts: 5})),
		router.AddHandler("charge", nil, message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[Charge]) ([]*message.Message, error) {
			charged := luatx.CmdableFromContext(ctx, client).IncrBy(ctx, "{account-7}:charged", msg.Data.Pence)
			return nil, luatx.Queued(charged)
		})),
	)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 { // assignments of the partition
		tenure := &message.Tenure{}
		for offset := range 3 {
			acking := message.NewAckingFrom(message.AckingConfig{Position: message.Position{
				Source: "charges", Partition: "0", Offset: fmt.Sprintf("%020d", offset), Tenure: tenure,
			}})
			_, err := router.Process(ctx, message.New(Charge{250}, message.Attributes{
				"id": fmt.Sprint("payment-", offset), "source": "/shop", "type": "charge", "subject": "account-7",
			}, acking))
			if err != nil {
				fmt.Println(err)
			}
		}
	}
	fmt.Println(client.Get(ctx, "{account-7}:charged").Val())
	// Output:
	// 750
}
