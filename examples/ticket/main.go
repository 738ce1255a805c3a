// Command ticket sells the seats of a concert. A procedure on the server reserves a seat for each buyer, however many call
// at once, and the reservation's timer is part of the same commit. If a buyer does not pay in time, the timer
// becomes an event, and its handler returns the seat, once.
//
//	go run ./examples/ticket
//
// It runs on a Redis inside the process, or on REDIS_ADDRS=host:port. It prints
//
//	50 buyers at once: 20 have a seat, 30 are told sold out
//	12 of them pay, 8 let their reservation lapse
//	8 seats are back
//	30 buyers at once: 8 have a seat, 22 are told sold out
//	sold and reserved: 20 of 20
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/examples/internal/local"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

const concert, hold = "concert-7", 4 * time.Second // how long a seat is reserved without payment

// procedures run on the server inside a commit, so nothing happens between their reads and their writes.
var procedures = []luatx.Procedure{
	{Name: "reserve", Keys: []string{"seats", "tickets"}, Args: []string{"buyer"}, Source: `
if tonumber(redis.call('GET', seats) or 0) < 1 then abort('sold out') end
redis.call('DECR', seats) redis.call('HSET', tickets, buyer, 'reserved')`},
	{Name: "pay", Keys: []string{"seats", "tickets"}, Args: []string{"buyer"}, Source: `
if redis.call('HGET', tickets, buyer) ~= 'reserved' then abort('no reservation') end
redis.call('HSET', tickets, buyer, 'paid')`},
	{Name: "release", Keys: []string{"seats", "tickets"}, Args: []string{"buyer"}, Source: `
if redis.call('HGET', tickets, buyer) == 'reserved' then
	redis.call('HDEL', tickets, buyer)
	redis.call('INCR', seats)
end`},
}

type office struct {
	transactor *luatx.Transactor
	timers     *expiry.Store
}

// do calls a procedure for a buyer in a commit with further changes. The id makes it happen once, however often it is
// called.
func (o office) do(ctx context.Context, procedure, buyer, id string, also func(*luatx.Tx) error) error {
	_, err := o.transactor.Transact(ctx, concert, func(tx *luatx.Tx) error {
		seats, err := tx.Key("seats")
		if err != nil {
			return err
		}
		tickets, err := tx.Key("tickets")
		return errors.Join(err, luatx.Queued(tx.Call(procedure, []string{seats, tickets}, buyer)), also(tx))
	}, luatx.WithID(id))
	return err
}

// rush lets several buyers call at once, and returns the buyers with a seat.
func (o office) rush(ctx context.Context, out io.Writer, first, count int) (served []string, err error) {
	var group sync.WaitGroup
	answers := make([]error, count)
	for i := range count {
		buyer := fmt.Sprint("buyer-", first+i)
		group.Go(func() {
			answers[i] = o.do(ctx, "reserve", buyer, "reserve/"+buyer, func(tx *luatx.Tx) error {
				return o.timers.RecordIn(tx, buyer, time.Now().Add(hold))
			})
		})
	}
	group.Wait()
	for i, answer := range answers {
		if answer == nil {
			served = append(served, fmt.Sprint("buyer-", first+i))
		} else if _, soldOut := errors.AsType[*luatx.AbortError](answer); !soldOut {
			return nil, answer
		}
	}
	fmt.Fprintf(out, "%d buyers at once: %d have a seat, %d are told sold out\n", count, len(served), count-len(served))
	return served, nil
}

func main() { os.Exit(local.Main("ticket", run)) }

func run(ctx context.Context, out io.Writer) error {
	server, err := local.Open("ticket", "")
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	keys := luatx.Partitions(4).WithPrefix(server.Namespace)
	transactor, err := luatx.New(server.Client, luatx.Config{Namespace: server.Namespace, Keyspace: keys, Procedures: procedures})
	if err != nil {
		return err
	}
	timers, err1 := expiry.New(transactor, expiry.Config{Aggregate: func(string) (string, error) { return concert, nil }})
	worker, err2 := expiry.NewWorker(timers, expiry.WorkerConfig{
		SweepInterval: 50 * time.Millisecond,
		Event: func(_ context.Context, t expiry.Timer) (*message.Message, error) {
			return message.New(nil, message.Attributes{"type": "reservation.lapsed", "source": "/tickets", "subject": t.Subject}, nil), nil
		},
	})
	o, returned := office{transactor, timers}, make(chan string, 100)
	events, err3 := relay.New(transactor, relay.Func(func(ctx context.Context, event *message.RawMessage) error {
		err := o.do(ctx, "release", event.Subject(), event.ID(), func(*luatx.Tx) error { return nil })
		if err == nil {
			returned <- event.Subject()
		}
		return err
	}, relay.FuncConfig{}), relay.Config{})
	seats, err4 := keys.Key(concert, "seats")
	if err := errors.Join(err1, err2, err3, err4, server.Client.Set(ctx, seats, 20, 0).Err()); err != nil {
		return err
	}
	var work sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer func() { stop(); work.Wait() }()
	work.Go(func() { _ = events.Run(ctx) })
	served, err := o.rush(ctx, out, 0, 50)
	for _, buyer := range served[:min(12, len(served))] {
		err = errors.Join(err, o.do(ctx, "pay", buyer, "pay/"+buyer, func(tx *luatx.Tx) error { return o.timers.CancelIn(tx, buyer) }))
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "12 of them pay, 8 let their reservation lapse")
	work.Go(func() { _ = worker.Run(ctx) }) // started here, so that a slow machine has sold its seats before the first reservation lapses
	for range len(served) - 12 {
		<-returned
	}
	fmt.Fprintf(out, "%s seats are back\n", server.Client.Get(ctx, seats).Val())
	_, err = o.rush(ctx, out, 50, 30)
	tickets, _ := keys.Key(concert, "tickets")
	fmt.Fprintf(out, "sold and reserved: %d of 20\n", server.Client.HLen(ctx, tickets).Val())
	return err
}
