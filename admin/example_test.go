package admin_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// An operator pauses a destination for an hour, and inspects the waiting events and the inbox.
func ExampleOperator() {
	ctx := context.Background()
	transactor, op, stop := orders()
	defer stop()
	_, err := transactor.Transact(ctx, "order-17", func(tx *luatx.Tx) error {
		body, err := outbox.Encode(message.New(nil, message.Attributes{
			"id": "placed-17", "source": "/orders", "type": "order.placed", "destination": "billing",
		}, nil))
		return errors.Join(err, tx.Emit(luatx.Event{ID: "placed-17", Body: body}))
	})
	if err != nil {
		log.Fatal(err)
	}

	if err := op.Pause(ctx, "billing", "a move of its database", time.Now().Add(time.Hour)); err != nil {
		log.Fatal(err)
	}
	stats, err := op.Stats(ctx)
	fmt.Println(stats.Counts.Pending, "pending,", stats.Paused[0].Destination, "paused by", stats.Paused[0].Who, err)
	for event, err := range op.Find(ctx, "placed-17") {
		fmt.Println(event.State, "for", event.Destination, err)
	}
	resumed, err := op.Resume(ctx, "billing")
	fmt.Println(resumed, err)
	for record, err := range op.Audit(ctx, time.Time{}) {
		fmt.Println(record.Who, record.Act, err)
	}
	// Output:
	// 1 pending, billing paused by ada <nil>
	// pending for billing <nil>
	// true <nil>
	// ada pause <nil>
	// ada resume <nil>
}

// orders returns a Transactor on a Redis inside the process, and its operator.
func orders() (transactor *luatx.Transactor, op *admin.Operator, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	if transactor, err = luatx.New(client, luatx.Config{Namespace: "orders", Keyspace: luatx.Partitions(4)}); err != nil {
		log.Fatal(err)
	}
	if op, err = admin.NewOperator(transactor, admin.OperatorConfig{Client: client, Name: "ada"}); err != nil {
		log.Fatal(err)
	}
	return transactor, op, func() {
		_ = client.Close()
		server.Close()
	}
}
