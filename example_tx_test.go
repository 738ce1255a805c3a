package luatx_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// The keys of one aggregate share a slot, so that one script can access them. They are the same inside and outside of
// transactions.
func ExampleKeyspace() {
	own := luatx.OwnTags() // each aggregate has its own slot
	key, err := own.Key("order-17", "lines")
	fmt.Println(key, err)

	shared := luatx.Partitions(16).WithPrefix("shop") // 16 slots, with one input stream in each
	key, err = shared.Key("order-17", "lines")
	fmt.Println(key, err)
	tag, err := shared.Tag("order-17")
	fmt.Println(shared.TagKey(tag, "orders"), err)
	// Output:
	// {order-17}:lines <nil>
	// shop:{pt6}:order-17:lines <nil>
	// shop:{pt6}:orders <nil>
}

// An adapter uses the client from the context: commands are recorded in a transaction, and executed otherwise.
func ExampleTx() {
	ctx := context.Background()
	client, stop := embedded()
	defer stop()
	transactor, err := luatx.New(client, luatx.Config{Namespace: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	save := func(ctx context.Context, order string) error { // the adapter
		key, err := transactor.Keyspace().Key(order, "status")
		if err != nil {
			return err
		}
		return luatx.CmdableFromContext(ctx, client).Set(ctx, key, "placed", 0).Err()
	}

	result, err := transactor.Transact(ctx, "order-17", func(tx *luatx.Tx) error {
		if err := save(tx.Context(ctx), "order-17"); err != nil {
			return err
		}
		fmt.Println(client.Exists(ctx, "{order-17}:status").Val(), "before the commit")
		return nil
	})
	fmt.Println(result.Outcome, err)
	fmt.Println(client.Get(ctx, "{order-17}:status").Val())
	// Output:
	// 0 before the commit
	// committed <nil>
	// placed
}

// An event exists if and only if the other writes of its transaction do. A relay publishes it.
func ExampleTx_Emit() {
	ctx := context.Background()
	client, stop := embedded()
	defer stop()
	transactor, err := luatx.New(client, luatx.Config{Namespace: "bank", Keyspace: luatx.Partitions(1)})
	if err != nil {
		log.Fatal(err)
	}
	_, err = transactor.Transact(ctx, "account-7", func(tx *luatx.Tx) error {
		return tx.Emit(luatx.Event{
			Data:       map[string]int{"pence": 250},
			Attributes: message.Attributes{"source": "/bank", "type": "paid.in", "subject": "account-7"},
			Key:        "account-7", // in order with the account's other events
		})
	}, luatx.WithID("payment-42"))
	fmt.Println(err)
	for event, err := range outbox.NewStore(transactor).List(ctx, outbox.Pending, outbox.ListOptions{}) {
		fmt.Println(event.Message.Type(), string(event.Message.Data), event.Key, err)
	}
	// Output:
	// <nil>
	// paid.in {"pence":250} account-7 <nil>
}

// If one command fails, all commands are undone, including earlier ones.
func ExampleCommandError() {
	ctx := context.Background()
	client, stop := embedded()
	defer stop()
	transactor, err := luatx.New(client, luatx.Config{Namespace: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	client.Set(ctx, "{order-17}:lines", "not a list", 0)
	_, err = transactor.Transact(ctx, "order-17", func(tx *luatx.Tx) error {
		tx.Pipeline().Set(ctx, "{order-17}:status", "placed", 0)
		tx.Pipeline().RPush(ctx, "{order-17}:lines", "lamp")
		return nil
	})
	if failed, ok := errors.AsType[*luatx.CommandError](err); ok {
		fmt.Println(failed.Index, failed.Command)
	}
	fmt.Println(client.Exists(ctx, "{order-17}:status").Val())
	// Output:
	// 1 rpush
	// 0
}

// A repeated call, for example after a crash, returns the replies of the first one.
func ExampleKeepReplies() {
	ctx := context.Background()
	client, stop := embedded()
	defer stop()
	transactor, err := luatx.New(client, luatx.Config{Namespace: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		var number *redis.IntCmd
		result, err := transactor.Transact(ctx, "invoices", func(tx *luatx.Tx) error {
			number = tx.Pipeline().Incr(ctx, "{invoices}:last")
			return nil
		}, luatx.WithID("order-17"), luatx.KeepReplies())
		fmt.Println(result.Outcome, number.Val(), err)
	}
	// Output:
	// committed 1 <nil>
	// duplicate 1 <nil>
}

// An Observer is notified of the outcome of each commit, for metrics, traces or logs.
func ExampleObserver() {
	client, stop := embedded()
	defer stop()
	transactor, err := luatx.New(client, luatx.Config{
		Namespace: "shop",
		Logger:    slog.New(slog.DiscardHandler),
		Observer: luatx.Observer{Committed: func(_ context.Context, c luatx.Commit) {
			fmt.Println(c.Outcome(), c.Commands, "command,", c.Events, "events")
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		_, err := transactor.Transact(context.Background(), "order-17", func(tx *luatx.Tx) error {
			return luatx.Queued(tx.Pipeline().Incr(context.Background(), "{order-17}:views"))
		}, luatx.WithID("view-1"))
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// committed 1 command, 0 events
	// duplicate 1 command, 0 events
}
