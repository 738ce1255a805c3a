package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// A handler's outputs become events of its transaction. The events of one order are published in order.
func ExampleMiddleware() {
	ctx := context.Background()
	transactor, stop := embedded()
	defer stop()
	type Ship struct{ Order string }
	router := message.NewRouter(message.PipeConfig{})
	err := errors.Join(
		router.Use(luatx.Middleware(transactor), outbox.Middleware(outbox.Config{
			Destination: func(*message.Message) (string, error) { return "warehouse", nil },
			OrderingKey: func(event *message.Message) (string, error) { return event.Subject(), nil },
		})),
		router.AddHandler("ship", nil, message.NewHandler(func(_ context.Context, msg *message.TypedMessage[Ship]) ([]*message.Message, error) {
			event := func(kind string) *message.Message {
				return message.New(msg.Data, message.Attributes{"source": "/orders", "type": kind, "subject": msg.Data.Order}, nil)
			}
			return []*message.Message{event("picked"), event("packed")}, nil
		})),
	)
	if err != nil {
		log.Fatal(err)
	}
	msg := message.New(Ship{"order-17"}, message.Attributes{"id": "1", "source": "/shop", "type": "ship", "subject": "order-17"}, nil)
	if _, err := router.Process(ctx, msg); err != nil {
		log.Fatal(err)
	}
	for _, state := range []outbox.State{outbox.Pending, outbox.Waiting} {
		for event, err := range outbox.NewStore(transactor).List(ctx, state, outbox.ListOptions{}) {
			fmt.Println(event.State, event.Message.Type(), "for", event.Destination, err)
		}
	}
	// Output:
	// pending picked for warehouse <nil>
	// waiting packed for warehouse <nil>
}

// Events outside of handlers are enqueued, once for each id. A scheduled event can be cancelled until a relay claims it.
func ExampleStore() {
	ctx := context.Background()
	transactor, stop := embedded()
	defer stop()
	store := outbox.NewStore(transactor).With(outbox.Config{At: func(event *message.Message) (at time.Time, err error) {
		if event.Type() == "reminder" {
			at = time.Now().Add(24 * time.Hour)
		}
		return at, nil
	}})
	for range 2 { // the caller repeats the call to be sure
		added, err := store.Enqueue(ctx, "order-17",
			message.New(nil, message.Attributes{"id": "placed-17", "source": "/orders", "type": "order.placed"}, nil),
			message.New(nil, message.Attributes{"id": "remind-17", "source": "/orders", "type": "reminder"}, nil))
		fmt.Println(added, err)
	}
	taken, err := store.Cancel(ctx, "order-17", "remind-17")
	fmt.Println(taken, err)
	counts, err := store.Counts(ctx)
	fmt.Println(counts.Pending, "pending", err)
	// Output:
	// 2 <nil>
	// 0 <nil>
	// true <nil>
	// 1 pending <nil>
}

// An operator finds out why an event was parked, fixes the cause, and re-arms the events that it parked.
func ExampleStore_RearmAll() {
	ctx := context.Background()
	transactor, stop := embedded()
	defer stop()
	store := outbox.NewStore(transactor)
	if _, err := store.Enqueue(ctx, "order-17", message.New(nil, message.Attributes{"id": "placed-17", "source": "/orders", "type": "order.placed"}, nil)); err != nil {
		log.Fatal(err)
	}
	slot, err := store.Slot("order-17")
	if err != nil {
		log.Fatal(err)
	}
	batch, err := store.Claim(ctx, slot, outbox.Work{}) // like a relay
	if err != nil {
		log.Fatal(err)
	}
	refused := outbox.Fault{ID: "placed-17", Err: message.Permanent(errors.New("no such customer"))}
	if _, err := store.Failed(ctx, batch, outbox.Work{}, refused); err != nil {
		log.Fatal(err)
	}

	for event, err := range store.Parked(ctx, outbox.Filter{}) {
		fmt.Println(event.ID, event.Class, event.Error, err)
	}
	result, err := store.As("ada").RearmAll(ctx, outbox.Filter{Class: "refused"}, outbox.RearmOptions{})
	fmt.Println(result.Rearmed, "of", result.Matched, err)
	for record, err := range store.Audit(ctx, time.Time{}) {
		fmt.Println(record.Who, record.Act, record.Done, err)
	}
	// Output:
	// placed-17 refused no such customer <nil>
	// 1 of 1 <nil>
	// ada rearm 1 <nil>
}

// embedded returns a Transactor on a Redis inside the process.
func embedded() (transactor *luatx.Transactor, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	transactor, err = luatx.New(client, luatx.Config{Namespace: "orders", Keyspace: luatx.Partitions(4)})
	if err != nil {
		log.Fatal(err)
	}
	return transactor, func() {
		_ = client.Close()
		server.Close()
	}
}
