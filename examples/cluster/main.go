// Command cluster is an order service on Redis Cluster. Orders arrive on a partitioned stream, whose partitions two
// members of a group share. Each order is entered with its event and its acknowledgement in one commit, on the master with
// its customer's slot. Meanwhile a slot moves to another master, and a replica takes over from that master.
//
//	go run ./examples/cluster
//
// It starts a cluster in temporary directories, for which redis-server must be on the PATH. With
// REDIS_ADDRS=host:port,host:port it uses that cluster, moves nothing there, and deletes its keys. It prints
//
//	orders sent       400, each of them twice
//	orders entered    400
//	entered twice     0
//	events published  400
//	meanwhile a slot has moved, and a replica has taken over: true
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/examples/internal/local"
	"github.com/luatx/luatx/examples/internal/localcluster"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stack"
	"github.com/luatx/luatx/stream"
)

type (
	placeOrder  struct{ Customer, Order string } // a command
	orderPlaced struct{ Order string }           // an event
)

const orders, customers = 400, 40

func main() { os.Exit(local.Main("cluster", run)) }

// newHandler returns the handler with its adapter. Its writes are recorded, and commit with the event and the ack.
func newHandler(client redis.Cmdable, keys luatx.Keyspace) message.Handler {
	return message.NewCommandHandler(func(ctx context.Context, cmd placeOrder) ([]orderPlaced, error) {
		key, err := keys.Key(cmd.Customer, "orders")
		entered := luatx.CmdableFromContext(ctx, client).HIncrBy(ctx, key, cmd.Order, 1)
		return []orderPlaced{{cmd.Order}}, errors.Join(err, luatx.Queued(entered))
	}, message.CommandHandlerConfig{Source: "/orders"})
}

func run(ctx context.Context, out io.Writer) error {
	cluster, err := localcluster.Open(ctx, "cluster")
	if err != nil {
		return err
	}
	defer func() { _ = cluster.Close() }()
	keys := luatx.Partitions(8).WithPrefix(cluster.Namespace)
	transactor, err := luatx.New(cluster.Client, luatx.Config{Namespace: cluster.Namespace, Keyspace: keys})
	if err != nil {
		return err
	}
	mw, err := stack.Scripted(transactor, stack.Config{})
	if err != nil {
		return err
	}
	engine := message.NewEngine(message.EngineConfig{})
	err = errors.Join(engine.Router().Use(mw), engine.AddHandler("place-order", nil, newHandler(cluster.Client, keys)))
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	working, stop := context.WithCancelCause(ctx)
	defer work.Wait() // until the messages in flight are settled
	defer stop(nil)
	var handled, published atomic.Int64
	var members [2]*stream.PartitionedSubscriber
	for i := range members { // of the group; usually in processes of their own
		member, err := stream.NewPartitionedSubscriber(cluster.Client, keys, stream.PartitionedConfig{
			SubscriberConfig: stream.SubscriberConfig{Stream: "orders", Group: "book", BlockTimeout: 100 * time.Millisecond},
		})
		if err != nil {
			return err
		}
		members[i] = member
		work.Go(func() {
			stop(member.Consume(working, transactor, stream.ProcessFunc(func(ctx context.Context, raw *message.RawMessage) error {
				err := engine.ProcessRaw(ctx, raw)
				if err == nil {
					handled.Add(1)
				}
				return err
			})))
		})
	}
	var ids sync.Map
	events, err := relay.New(transactor, relay.Func(func(_ context.Context, event *message.RawMessage) error {
		if _, again := ids.LoadOrStore(event.ID(), true); !again { // at least once, with the same id
			published.Add(1)
		}
		return nil
	}, relay.FuncConfig{}), relay.Config{})
	if err != nil {
		return err
	}
	work.Go(func() { stop(events.Run(working)) })
	pub, err := stream.NewPartitionedPublisher(cluster.Client, keys, stream.PublisherConfig{Stream: "orders"})
	if err != nil {
		return err
	}
	for working.Err() == nil && (members[0].Stats().Holding == 0 || members[1].Stats().Holding == 0) {
		<-time.After(time.Millisecond)
	}
	work.Go(func() { send(working, pub) })
	disturbed, err := cluster.Disturb(ctx, keys.Slots()[0])
	for ; err == nil && (handled.Load() < 2*orders || published.Load() < orders); err = context.Cause(working) {
		<-time.After(20 * time.Millisecond)
	}
	entered, twice := 0, 0
	for i := range customers {
		key, _ := keys.Key(fmt.Sprint("customer-", i), "orders")
		for _, times := range cluster.Client.HGetAll(ctx, key).Val() {
			entered++
			if times != "1" {
				twice++
			}
		}
	}
	fmt.Fprintf(out, "orders sent       %d, each of them twice\norders entered    %d\nentered twice     %d\n", orders, entered, twice)
	fmt.Fprintf(out, "events published  %d\nmeanwhile a slot has moved, and a replica has taken over: %v\n", published.Load(), disturbed)
	return err
}

// send sends each order twice, like a shop that did not get the first reply.
func send(ctx context.Context, pub *stream.Publisher) {
	for i := range 2 * orders {
		cmd := placeOrder{fmt.Sprint("customer-", i%customers), fmt.Sprint("order-", i%orders)}
		data, _ := json.Marshal(cmd)
		msg := message.NewRaw(data, message.Attributes{"id": cmd.Order, "source": "/shop", "type": "place.order", "subject": cmd.Customer}, nil)
		for ctx.Err() == nil && pub.Send(ctx, msg) != nil { // the client has given up, so send again
			continue
		}
	}
}
