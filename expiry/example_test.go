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

// One ticket expires, one is revoked in time, and one is extended.
func Example() {
	ctx := context.Background()
	server, err := miniredis.Run() // or your own
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	transactor, err := luatx.New(client, luatx.Config{Namespace: "tickets", Keyspace: luatx.Partitions(16)})
	if err != nil {
		log.Fatal(err)
	}
	timers, err := expiry.New(transactor, expiry.Config{})
	if err != nil {
		log.Fatal(err)
	}
	event := func(kind, ticket string) *message.Message {
		return message.New(nil, message.Attributes{"type": kind, "source": "/tickets", "subject": ticket}, nil)
	}

	due := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	server.SetTime(due.Add(-time.Hour))
	for _, ticket := range []string{"ticket-1", "ticket-2", "ticket-3"} {
		if err := timers.Record(ctx, ticket, due); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := timers.Revoke(ctx, "ticket-2", event("TicketRevoked", "ticket-2")); err != nil {
		log.Fatal(err)
	}
	if _, err := timers.Extend(ctx, "ticket-3", due.Add(24*time.Hour)); err != nil {
		log.Fatal(err)
	}

	server.SetTime(due) // an hour passes
	for timer, err := range timers.Due(ctx, 100) {
		if err != nil {
			log.Fatal(err)
		}
		// A Worker does the same at intervals.
		decision, err := timers.Decide(ctx, timer, event("TicketExpired", timer.Subject), time.Time{})
		fmt.Println(timer.Subject, decision, err)
	}
	decision, err := timers.Decide(ctx, expiry.Timer{Subject: "ticket-2", Due: due}, event("TicketExpired", "ticket-2"), time.Time{})
	fmt.Println("ticket-2", decision, err)
	revoked, err := timers.Revoke(ctx, "ticket-1", event("TicketRevoked", "ticket-1"))
	fmt.Println("ticket-1 revoked:", revoked, err)
	// Output:
	// ticket-1 enqueued <nil>
	// ticket-2 revoked <nil>
	// ticket-1 revoked: false <nil>
}
