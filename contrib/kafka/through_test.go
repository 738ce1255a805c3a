package kafka_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/luatx/luatx/contrib/kafka"
	"github.com/luatx/luatx/internal/test/brokertest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/relay"
)

// TestOrdersBecomeEventsOnceDespiteACrash sends plain records from Kafka to a handler, whose commit marks them as applied by
// partition and offset, counts them and emits an event, and from the outbox by a relay back to Kafka. The service dies before
// it has committed an offset, another one gets all records again, and every effect is there once.
func TestOrdersBecomeEventsOnceDespiteACrash(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		const orders, customers = 40, 5
		c := newCluster(t, 3, "orders", "placed")
		producer := c.client()
		for i := range orders {
			key := fmt.Sprint("customer-", i%customers)
			redistest.Must(t, producer.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Key: []byte(key), Value: fmt.Appendf(nil, `{"Order":"order-%d"}`, i)}).FirstErr())
		}
		service := brokertest.NewOrders(t, client, "placed", customers)
		service.Keyed = true
		serve := func(m *member) (stop func()) {
			return service.Serve(t, m.in, c.publisher(), relay.Config{SweepInterval: 200 * time.Millisecond})
		}
		c.forgets.Store(true) // as if the process were killed before it commits
		killed := c.join("orders")
		stop := serve(killed)
		redistest.Eventually(t, "all orders to be handled", func() bool { n, _ := service.Counted(t); return n == orders })
		stop()
		killed.leave()
		if at := c.committed("orders", 0) + c.committed("orders", 1) + c.committed("orders", 2); at > 0 {
			t.Fatalf("%d offsets are committed", at)
		}
		c.forgets.Store(false)
		alive := c.join("orders", func(cfg *kafka.SubscriberConfig) { cfg.Concurrency = 4 })
		stop = serve(alive)
		redistest.Eventually(t, "all records to come again and be committed", func() bool {
			return c.committed("orders", 0)+c.committed("orders", 1)+c.committed("orders", 2) == orders
		})
		c.records("placed", orders) // the next relay publishes what this one has not
		alive.end()
		stop()
		n, twice := service.Counted(t)
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
