package luatx_test

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

// PlaceOrder is a command and OrderPlaced an event. The handler uses neither Redis nor transactions.
type (
	PlaceOrder  struct{ ID, Product string }
	OrderPlaced struct{ ID string }
	Orders      interface {
		Save(ctx context.Context, o PlaceOrder) error
	}
)

func NewPlaceOrder(orders Orders) message.Handler {
	return message.NewCommandHandler(func(ctx context.Context, cmd PlaceOrder) ([]OrderPlaced, error) {
		return []OrderPlaced{{cmd.ID}}, orders.Save(ctx, cmd)
	}, message.CommandHandlerConfig{Source: "/orders"})
}

// RedisOrders is the adapter. Inside a transaction, its commands are recorded; otherwise they are executed.
type RedisOrders struct {
	client redis.UniversalClient
	keys   luatx.Keyspace
}

func (r RedisOrders) Save(ctx context.Context, o PlaceOrder) error {
	key, err := r.keys.Key(o.ID, "order")
	if err != nil {
		return err
	}
	return luatx.CmdableFromContext(ctx, r.client).HSet(ctx, key, "product", o.Product, "status", "placed").Err()
}

// One script commits the inbox mark, the order, the event and, for a message from a stream of the same slot, its acknowledgement.
func Example() {
	ctx := context.Background()
	server, err := miniredis.Run() // or your own server
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	transactor, err := luatx.New(client, luatx.Config{Namespace: "orders", Keyspace: luatx.Partitions(16)})
	if err != nil {
		log.Fatal(err)
	}
	mw, err := stack.Scripted(transactor, stack.Config{}) // was: stack.Pipelined(client, cfg)
	if err != nil {
		log.Fatal(err)
	}
	router := message.NewRouter(message.PipeConfig{})
	_ = router.Use(mw)
	_ = router.AddHandler("place-order", nil, NewPlaceOrder(RedisOrders{client, transactor.Keyspace()}))

	for range 2 { // the broker delivers the message twice
		msg := message.New(PlaceOrder{"17", "lamp"}, message.Attributes{
			"id": "m-1", "source": "/web", "type": "place.order", "subject": "17",
		}, message.NewAcking(func() { fmt.Println("acked") }, func(err error) { fmt.Println("nacked", err) }))
		if _, err := router.Process(ctx, msg); err != nil {
			log.Fatal(err)
		}
	}
	key, _ := transactor.Keyspace().Key("17", "order")
	fmt.Println(client.HGetAll(ctx, key).Val()["status"])
	// Output:
	// acked
	// acked
	// placed
}

func ExampleTransactor_Transact() {
	ctx := context.Background()
	client, stop := embedded()
	defer stop()
	transactor, err := luatx.New(client, luatx.Config{Namespace: "billing"})
	if err != nil {
		log.Fatal(err)
	}

	for range 2 { // the caller retries with the same idempotency id
		var balance *redis.IntCmd
		result, err := transactor.Transact(ctx, "account-7", func(tx *luatx.Tx) error {
			key, err := tx.Key("balance")
			if err != nil {
				return err
			}
			balance = tx.Pipeline().IncrBy(ctx, key, 250)
			return nil
		}, luatx.WithID("payment-42"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(result.Outcome)
		if result.Outcome == luatx.Committed {
			fmt.Println("balance", balance.Val())
		}
	}
	// Output:
	// committed
	// balance 250
	// duplicate
}

// Many concurrent transactions need few round trips. Each one commits as a whole or not at all.
func ExampleTransactor_TransactBatch() {
	ctx := context.Background()
	client, stop := embedded()
	defer stop()
	transactor, err := luatx.New(client, luatx.Config{Namespace: "accounts"})
	if err != nil {
		log.Fatal(err)
	}

	var items []luatx.BatchItem
	for _, account := range []string{"ann", "bob", "ann"} {
		items = append(items, luatx.BatchItem{Aggregate: account, Func: func(tx *luatx.Tx) error {
			key, err := tx.Key("interest")
			if err != nil {
				return err
			}
			return luatx.Queued(tx.Pipeline().Incr(ctx, key))
		}, Options: []luatx.Option{luatx.WithID("2026-10")}})
	}
	for i, result := range transactor.TransactBatch(ctx, items) {
		fmt.Println(items[i].Aggregate, result.Outcome, result.Err)
	}
	// Output:
	// ann committed <nil>
	// bob committed <nil>
	// ann duplicate <nil>
}
