package stack_test

import (
	"context"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
)

// One handler in both stacks. To change the mode, change one line.
func Example() {
	server, err := miniredis.Run()
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
	cfg := stack.Config{OutboxStream: "{outbox}:events"}

	for _, mode := range []string{"pipelined", "scripted"} {
		var mw message.Middleware
		if mode == "pipelined" {
			mw, err = stack.Pipelined(client, cfg) // before
		} else {
			mw, err = stack.Scripted(transactor, cfg) // after
		}
		if err != nil {
			log.Fatal(err)
		}
		keyspace := transactor.Keyspace()
		router := message.NewRouter(message.PipeConfig{})
		if err := router.Use(mw); err != nil {
			log.Fatal(err)
		}
		if err := router.AddHandler("charge", nil, newHandler(redisAccounts{client, keyspace})); err != nil {
			log.Fatal(err)
		}
		for range 2 { // delivered twice
			msg := message.New(charge{Customer: mode, Order: "order-1", Pence: 500}, message.Attributes{
				"id": mode + "-1", "source": "/shop", "type": "charge", "subject": mode,
			}, message.NewAcking(nil, nil))
			if _, err := router.Process(context.Background(), msg); err != nil {
				fmt.Println(err)
			}
		}
		key, err := keyspace.Key(mode, "sums")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: spent %s\n", mode, client.HGet(context.Background(), key, "spent").Val())
	}
	// Output:
	// pipelined: spent 500
	// scripted: spent 500
}
