package service_test

import (
	"context"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/service"

	"github.com/luatx/luatx/message"
)

type (
	Greet   struct{ Name string } // a command
	Greeted struct{ Name string } // an event
)

func greet(ctx context.Context, cmd Greet) ([]Greeted, error) {
	tx, _ := luatx.TxFromContext(ctx)
	key, err := tx.Key("greetings")
	if err != nil {
		return nil, err
	}
	return []Greeted{{cmd.Name}}, luatx.Queued(tx.Pipeline().Incr(ctx, key))
}

// A service reads a stream, commits, and publishes by the publisher that it is given.
func Example() {
	server, err := miniredis.Run() // or your own
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	ctx, stop := context.WithCancel(context.Background()) // a program uses signal.NotifyContext
	publisher := relay.Func(func(_ context.Context, event *message.RawMessage) error {
		fmt.Println(event.Type(), string(event.Data))
		stop()
		return nil
	}, relay.FuncConfig{})
	greetings, err := service.New(client, service.Config{
		Namespace: "greetings", Stream: "greetings", Given: service.Given{Publisher: publisher},
	}, service.Command("greet", greet))
	if err != nil {
		log.Fatal(err)
	}
	client.XAdd(ctx, &redis.XAddArgs{Stream: "greetings", Values: map[string]any{"type": "greet", "subject": "ada", "data": `{"Name":"Ada"}`}})
	if err := greetings.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: greeted {"Name":"Ada"}
}
