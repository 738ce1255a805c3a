package brokertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stack"
)

// Orders is a service that counts the orders of customers, and emits an event for each, in one commit.
type Orders struct {
	// Destination is where the events go to.
	Destination string
	// Customers is how many there are: their orders have the subjects customer-0 and so on.
	Customers int
	// Keyed publishes the events of a customer one after the other.
	Keyed bool

	client redis.UniversalClient
	tr     *luatx.Transactor
}

// NewOrders returns a service on a Redis.
func NewOrders(t testing.TB, client redis.UniversalClient, destination string, customers int) Orders {
	t.Helper()
	ns := redistest.Namespace(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: ns, Keyspace: luatx.Partitions(4).WithPrefix(ns)})
	redistest.Must(t, err)
	return Orders{Destination: destination, Customers: customers, client: client, tr: tr}
}

// Counted returns how many orders have been counted, and how many of them twice.
func (o Orders) Counted(t testing.TB) (orders, twice int) {
	t.Helper()
	for i := range o.Customers {
		key, err := o.tr.Keyspace().Key(fmt.Sprint("customer-", i), "orders")
		redistest.Must(t, err)
		for _, n := range o.client.HGetAll(t.Context(), key).Val() {
			if orders++; n != "1" {
				twice++
			}
		}
	}
	return orders, twice
}

type order struct{ Order string }

// Serve runs the service and its relay, until stop. Orders whose names end in 0 fail every other time.
func (o Orders) Serve(t testing.TB, in <-chan *message.RawMessage, to relay.Publisher, cfg relay.Config) (stop func()) {
	t.Helper()
	mw, err := stack.Scripted(o.tr, stack.Config{})
	redistest.Must(t, err)
	var failing atomic.Int64
	handler := message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[order]) ([]*message.Message, error) {
		if strings.HasSuffix(msg.Data.Order, "0") && failing.Add(1)%2 == 1 {
			return nil, errors.New("fails on the first delivery")
		}
		key, err := o.tr.Keyspace().Key(msg.Subject(), "orders")
		if err != nil {
			return nil, err
		}
		placed := message.New(msg.Data, message.Attributes{"source": "/service", "type": "order.placed", "destination": o.Destination}, nil)
		if o.Keyed {
			placed.Attributes["partitionkey"] = msg.Subject()
		}
		return []*message.Message{placed}, luatx.Queued(luatx.CmdableFromContext(ctx, o.client).HIncrBy(ctx, key, msg.Data.Order, 1))
	}, message.Named(""))
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{Concurrency: 4, ErrorHandler: func(context.Context, *message.Message, error) {}}})
	redistest.Must(t, errors.Join(engine.Router().Use(mw), engine.AddHandler("place", nil, handler), engine.AddRawInput("orders", nil, in)))
	sends, err := relay.New(o.tr, to, cfg)
	redistest.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- engine.Run(ctx) }()
	go func() { ended <- sends.Run(ctx) }()
	return func() {
		cancel()
		redistest.Must(t, errors.Join(<-ended, <-ended))
	}
}
