// Command asynq is the service of the README with asynq, for docs/comparison.md.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// PlaceOrder is a task of the type "place.order".
type PlaceOrder struct{ Customer, Product string }

// OrderPlaced is a task of the type "order.placed".
type OrderPlaced struct{ Customer, Product string }

type orders struct {
	state  *redis.Client
	events *asynq.Client
}

func (o orders) place(ctx context.Context, task *asynq.Task) error {
	var cmd PlaceOrder
	if err := json.Unmarshal(task.Payload(), &cmd); err != nil {
		return fmt.Errorf("%w: %w", asynq.SkipRetry, err)
	}
	if err := o.state.HIncrBy(ctx, "bought:"+cmd.Customer, cmd.Product, 1).Err(); err != nil {
		return err
	}
	event, err := json.Marshal(OrderPlaced(cmd))
	if err != nil {
		return err
	}
	_, err = o.events.EnqueueContext(ctx, asynq.NewTask("order.placed", event), asynq.Queue("order-events"))
	return err
}

func main() {
	server := asynq.RedisClientOpt{Addr: cmp.Or(os.Getenv("REDIS_ADDR"), "localhost:6379")}
	o := orders{redis.NewClient(&redis.Options{Addr: server.Addr}), asynq.NewClient(server)}
	defer o.state.Close()
	defer o.events.Close()
	mux := asynq.NewServeMux()
	mux.HandleFunc("place.order", o.place)
	// Run returns after SIGTERM.
	if err := asynq.NewServer(server, asynq.Config{Queues: map[string]int{"orders": 1}}).Run(mux); err != nil {
		log.Print(err)
	}
}
