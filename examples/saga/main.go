// Command saga places orders over three aggregates, each in a slot of its own: an order, the stock of its product, and the
// credit of its customer. Nothing is atomic across slots, so each step commits in its own slot, with the event that
// triggers the next: outbox, relay, inbox. If the charge is refused, the stock is returned.
//
//	go run ./examples/saga
//
// It runs on a Redis inside the process, or on REDIS_ADDRS=host:port. Every event is delivered twice. It prints
//
//	order-1: confirmed
//	order-2: cancelled, not enough credit
//	order-3: confirmed
//	order-4: cancelled, out of stock
//	lamps left: 0, credit left: ada 100, bob 300
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/examples/internal/local"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stack"
)

// order is the data of every event of its saga.
type order struct {
	ID, Product, Customer, Why string
	Price                      int
}

// saga is one step of an order, in the transaction of one aggregate.
type saga struct {
	order
	ctx context.Context
	tx  *luatx.Tx
	key string // of the aggregate's hash
}

// steps maps each event to its step. A step changes one aggregate and returns the next event with its subject, the
// aggregate of the next step. Without a next event, the saga ends.
var steps = map[string]func(s *saga) (event, subject string, err error){
	"order.placed": func(s *saga) (string, string, error) { return "stock.wanted", s.Product, s.set("placed") },
	"stock.wanted": func(s *saga) (string, string, error) {
		if ok, err := s.take("stock", 1); !ok {
			s.Why = "out of stock"
			return "order.refused", s.ID, err
		}
		return "charge.wanted", s.Customer, nil
	},
	"charge.wanted": func(s *saga) (string, string, error) {
		if ok, err := s.take("credit", s.Price); !ok {
			s.Why = "not enough credit"
			return "charge.refused", s.Product, err
		}
		return "order.paid", s.ID, nil
	},
	"charge.refused": func(s *saga) (string, string, error) { // compensation
		_, err := s.take("stock", -1)
		return "order.refused", s.ID, err
	},
	"order.paid":    func(s *saga) (string, string, error) { return "", "", s.set("confirmed") },
	"order.refused": func(s *saga) (string, string, error) { return "", "", s.set("cancelled, " + s.Why) },
}

func (s *saga) set(status string) error {
	return s.tx.Pipeline().HSet(s.ctx, s.key, "status", status).Err()
}

// take takes n units of a field if there are enough. The read is guarded: if another commit changes the field, the handler
// runs again.
func (s *saga) take(field string, n int) (bool, error) {
	if left, err := s.tx.Read().HGet(s.ctx, s.key, field).Int(); err != nil || left < n {
		return false, err
	}
	return true, luatx.Queued(s.tx.Pipeline().HIncrBy(s.ctx, s.key, field, int64(-n)))
}

// handle is the handler of every event.
func handle(ctx context.Context, msg *message.TypedMessage[order]) ([]*message.Message, error) {
	tx, _ := luatx.TxFromContext(ctx)
	key, err := tx.Key()
	s := &saga{msg.Data, ctx, tx, key}
	event, subject, failed := steps[msg.Type()](s)
	if err := errors.Join(err, failed); event == "" || err != nil {
		return nil, err
	}
	return []*message.Message{message.New(s.order, message.Attributes{"source": "/saga", "type": event, "subject": subject}, nil)}, nil
}

func main() { os.Exit(local.Main("saga", run)) }

func run(ctx context.Context, out io.Writer) error {
	server, err := local.Open("saga", "")
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	keys := luatx.Partitions(64).WithPrefix(server.Namespace) // the three are usually in three slots
	transactor, err := luatx.New(server.Client, luatx.Config{Namespace: server.Namespace, Keyspace: keys})
	if err != nil {
		return err
	}
	mw, err := stack.Scripted(transactor, stack.Config{}) // with an inbox and an outbox for each step
	ended, engine := make(chan string, 10), message.NewEngine(message.EngineConfig{})
	for event := range steps {
		err = errors.Join(err, engine.AddHandler(event, nil, message.NewHandler(handle, message.Named(event))))
	}
	events, err2 := relay.New(transactor, relay.Func(func(ctx context.Context, event *message.RawMessage) error {
		_, err := engine.Process(ctx, message.Copy(event, event.Data))
		_, again := engine.Process(ctx, message.Copy(event, event.Data)) // brokers may deliver twice; it is applied once
		if event.Type() == "order.paid" || event.Type() == "order.refused" {
			ended <- event.Subject()
		}
		return errors.Join(err, again)
	}, relay.FuncConfig{}), relay.Config{})
	redis, key := server.Client, func(id string) string { k, _ := keys.Key(id); return k }
	err = errors.Join(err, err2, engine.Router().Use(mw), redis.HSet(ctx, key("lamp"), "stock", 2).Err(),
		redis.HSet(ctx, key("ada"), "credit", 400).Err(), redis.HSet(ctx, key("bob"), "credit", 600).Err())
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer func() { stop(); work.Wait() }()
	work.Go(func() { _ = events.Run(ctx) })
	for i, customer := range []string{"ada", "ada", "bob", "bob"} {
		o := order{ID: fmt.Sprint("order-", i+1), Product: "lamp", Customer: customer, Price: 300}
		placed := message.New(o, message.Attributes{"id": "placed-" + o.ID, "source": "/shop", "type": "order.placed", "subject": o.ID}, nil)
		if _, err = outbox.NewStore(transactor).Enqueue(ctx, o.ID, placed); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s\n", o.ID, redis.HGet(ctx, key(<-ended), "status").Val())
	}
	_, err = fmt.Fprintf(out, "lamps left: %s, credit left: ada %s, bob %s\n", redis.HGet(ctx, key("lamp"), "stock").Val(),
		redis.HGet(ctx, key("ada"), "credit").Val(), redis.HGet(ctx, key("bob"), "credit").Val())
	return err
}
