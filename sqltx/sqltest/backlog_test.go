package sqltest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
	"github.com/luatx/luatx/sqltx/sqltest"
)

// TestClaimsReadNoEventsThatWait tests that claims end within a short lease, however many events wait behind the first one of
// their key, and whether that one can be claimed or not.
func TestClaimsReadNoEventsThatWait(t *testing.T) {
	t.Parallel()
	const keys, each, doubled = 10, 20, 10
	sqltest.Every(t, func(t *testing.T, d sqltest.Database) {
		db, table := d.Open(t), sqltest.Table("outbox")
		cfg := sqltx.OutboxConfig{DB: db, Table: table, Topic: "events"}
		must(t, cfg.Init(t.Context()))
		emit := func(key string, n int) {
			t.Helper()
			events := make([]*message.Message, n)
			for i := range events {
				name := fmt.Sprintf("%s-%d", key, i)
				events[i] = message.New(name, message.Attributes{message.AttrID: name, message.AttrType: "t", message.AttrSource: "s"}, nil)
				if key != "" {
					events[i].Attributes[message.AttrPartitionKey] = key
				}
			}
			must(t, sqltx.Transact(t.Context(), db, nil, func(ctx context.Context) error { return sqltx.Emit(ctx, cfg, events...) }))
		}
		for k := range keys {
			emit(fmt.Sprintf("busy%d", k), each)
		}
		for range doubled {
			execute(t, db, "INSERT INTO "+table+" (topic, event_type, data, attributes, ordering_key) SELECT topic, event_type, data, attributes, ordering_key FROM "+table)
		}
		execute(t, db, "UPDATE "+table+" SET lease = 'other', next_attempt_at = "+d.Dialect.NowMillis+" + 3600000 WHERE id IN (SELECT id FROM (SELECT MIN(id) AS id FROM "+table+" GROUP BY ordering_key) k)")
		emit("", 1)
		emit("quiet", 1)

		p := sqltx.NewOutboxPublisher(sqltx.OutboxPublisherConfig{DB: db, Table: table, Lease: 300 * time.Millisecond, PollInterval: 10 * time.Millisecond})
		ctx, cancel := context.WithCancel(t.Context())
		source, err := p.Source(ctx)
		must(t, err)
		defer func() {
			cancel()
			p.Wait()
		}()
		next := func() *message.RawMessage {
			select {
			case msg := <-source:
				return msg
			case <-time.After(60 * time.Second):
				t.Fatal("no event was handed out")
				return nil
			}
		}
		for range 2 {
			msg := next()
			if key := msg.PartitionKey(); key != "" && key != "quiet" {
				t.Errorf("an event of %s was handed out", key)
			}
			msg.Ack()
		}

		execute(t, db, "UPDATE "+table+" SET lease = NULL, next_attempt_at = 0 WHERE lease = 'other'")
		seen := map[string]int{}
		for range keys * each {
			msg := next()
			key := msg.PartitionKey()
			if want := fmt.Sprintf("%s-%d", key, seen[key]); msg.ID() != want && seen[key] < each {
				t.Errorf("%s was handed out, want %s", msg.ID(), want)
			}
			seen[key]++
			msg.Ack()
		}
	})
}

// TestRearmAndDiscardTakeAnyNumberOfEvents passes more ids than a statement may have arguments.
func TestRearmAndDiscardTakeAnyNumberOfEvents(t *testing.T) {
	t.Parallel()
	sqltest.Every(t, func(t *testing.T, d sqltest.Database) {
		db, table := d.Open(t), sqltest.Table("parked")
		cfg := sqltx.OutboxConfig{DB: db, Table: table, Dialect: d.Dialect}
		must(t, cfg.Init(t.Context()))
		must(t, sqltx.Transact(t.Context(), db, nil, func(ctx context.Context) error {
			return sqltx.Emit(ctx, cfg, keyed("first")[0], keyed("last")[0])
		}))
		p := sqltx.NewOutboxPublisher(sqltx.OutboxPublisherConfig{DB: db, Table: table})
		ids := make([]int64, 70_000)
		for i := range ids {
			ids[i] = int64(i) - 1_000_000
		}
		ids[0], ids[len(ids)-1] = 1, 2
		for _, act := range []func(context.Context, ...int64) (int, error){p.Rearm, p.Discard} {
			execute(t, db, "UPDATE "+table+" SET parked = TRUE")
			if n, err := act(t.Context(), ids...); n != 2 || err != nil {
				t.Errorf("%d events, %v", n, err)
			}
		}
		execute(t, db, "DROP TABLE "+table)
	})
}
