package expiry_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/message"
)

// One commit stores a reservation and its timer. When the timer is due, a worker creates an event, which a relay publishes.
func ExampleWorker() {
	ctx, stop := context.WithCancel(context.Background())
	server, err := miniredis.Run() // or your own
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	transactor, err := luatx.New(client, luatx.Config{Namespace: "tickets", Keyspace: luatx.Partitions(4)})
	if err != nil {
		log.Fatal(err)
	}
	timers, err := expiry.New(transactor, expiry.Config{})
	if err != nil {
		log.Fatal(err)
	}
	due := time.Now().Add(10 * time.Millisecond)
	_, err = transactor.Transact(ctx, "seat-12", func(tx *luatx.Tx) error {
		key, err := tx.Key("holder")
		if err != nil {
			return err
		}
		tx.Pipeline().Set(ctx, key, "ada", 0)
		return timers.RecordIn(tx, "seat-12", due)
	})
	if err != nil {
		log.Fatal(err)
	}

	lapsed := make(chan string, 10)
	worker, err := expiry.NewWorker(timers, expiry.WorkerConfig{
		SweepInterval: 10 * time.Millisecond,
		Event: func(_ context.Context, t expiry.Timer) (*message.Message, error) {
			lapsed <- t.Subject
			return message.New(nil, message.Attributes{"type": "reservation.lapsed", "source": "/tickets", "subject": t.Subject}, nil), nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()
	fmt.Println(<-lapsed, "has lapsed")
	stop()
	fmt.Println(<-done)
	// Output:
	// seat-12 has lapsed
	// <nil>
}
