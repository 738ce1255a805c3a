package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/contrib/kafka"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stack"
)

// TestThrough sends plain records all the way: from Kafka to a handler, whose commit marks them as applied by partition and
// offset, counts them and emits an event, and from the outbox by a relay to Kafka. The service dies before it has
// committed an offset, another one gets all records again, and every effect is there once.
func TestThrough(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		const orders, customers = 40, 5
		c := newCluster(t, 3, "orders", "placed")
		producer := c.client()
		for i := range orders {
			key := fmt.Sprint("customer-", i%customers)
			must(t, producer.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Key: []byte(key), Value: fmt.Appendf(nil, `{"Order":"order-%d"}`, i)}).FirstErr())
		}
		ns := redistest.Namespace(t)
		tr, err := luatx.New(client, luatx.Config{Namespace: ns, Keyspace: luatx.Partitions(4).WithPrefix(ns)})
		must(t, err)
		counts := func() (orders, twice int) {
			for i := range customers {
				key, err := tr.Keyspace().Key(fmt.Sprint("customer-", i), "orders")
				must(t, err)
				for _, n := range client.HGetAll(t.Context(), key).Val() {
					if orders++; n != "1" {
						twice++
					}
				}
			}
			return orders, twice
		}
		c.forgets.Store(true) // as if the process were killed before it commits
		killed := c.join("orders")
		stop := serve(t, c, tr, client, killed.in)
		redistest.Eventually(t, "all orders to be handled", func() bool { n, _ := counts(); return n == orders })
		stop()
		killed.leave()
		if at := c.committed("orders", 0) + c.committed("orders", 1) + c.committed("orders", 2); at > 0 {
			t.Fatalf("%d offsets are committed", at)
		}
		c.forgets.Store(false)
		alive := c.join("orders", func(cfg *kafka.SubscriberConfig) { cfg.Concurrency = 4 })
		stop = serve(t, c, tr, client, alive.in)
		redistest.Eventually(t, "all records to come again and be committed", func() bool {
			return c.committed("orders", 0)+c.committed("orders", 1)+c.committed("orders", 2) == orders
		})
		c.records("placed", orders) // what a relay has not published when it stops waits for the next one
		alive.end()
		stop()
		n, twice := counts()
		seen := map[string]bool{}
		records := c.records("placed", orders)
		for _, rec := range records {
			seen[string(rec.Value)] = true
		}
		if n != orders || twice != 0 || len(seen) != orders || len(records) != orders {
			t.Errorf("%d orders are counted, %d twice; %d events, %d records", n, twice, len(seen), len(records))
		}
	})
}

type order struct {
	Order string
}

// serve runs the service and its relay.
func serve(t *testing.T, c *cluster, tr *luatx.Transactor, client redis.UniversalClient, in <-chan *message.RawMessage) (stop func()) {
	t.Helper()
	mw, err := stack.Scripted(tr, stack.Config{})
	must(t, err)
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{Concurrency: 4, ErrorHandler: func(context.Context, *message.Message, error) {}}})
	must(t, engine.Router().Use(mw))
	must(t, engine.AddHandler("place", nil, message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[order]) ([]*message.Message, error) {
		key, err := tr.Keyspace().Key(msg.Subject(), "orders")
		if err != nil {
			return nil, err
		}
		placed := message.New(msg.Data, message.Attributes{"source": "/service", "type": "order.placed", "destination": "placed", "partitionkey": msg.Subject()}, nil)
		return []*message.Message{placed}, luatx.Queued(luatx.CmdableFromContext(ctx, client).HIncrBy(ctx, key, msg.Data.Order, 1))
	}, message.Named("orders"))))
	must(t, engine.AddRawInput("orders", nil, in))
	sends, err := relay.New(tr, c.publisher(), relay.Config{SweepInterval: 200 * time.Millisecond})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- engine.Run(ctx) }()
	go func() { ended <- sends.Run(ctx) }()
	return func() {
		cancel()
		must(t, errors.Join(<-ended, <-ended))
	}
}
