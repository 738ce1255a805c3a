package stream_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
)

// The master dies and its replica takes over: the same subscription goes on, with what was pending and what is new.
func TestFailover(t *testing.T) {
	t.Parallel()
	group := redistest.Sentinel(t)
	f := newFixture(t, group.Client(t))
	f.add(t, "a", "b")
	sub := f.subscribe(t, f.config())
	a, b := sub.next(t), sub.next(t)
	a.Ack()
	ctx := redistest.Soon(t)
	master, err := group.Master(ctx)
	must(t, err)
	if n, err := master.Client(t).Wait(ctx, 1, 5*time.Second).Result(); n < 1 || err != nil {
		t.Fatalf("%d replicas have it, error %v", n, err)
	}
	must(t, master.Kill())
	_, err = group.WaitMaster(ctx, master)
	must(t, err)
	b.Nack(errBusy)
	redistest.Eventually(t, "a write", func() bool {
		return f.client.XAdd(ctx, &redis.XAddArgs{Stream: f.key, Values: []any{"data", "c"}}).Err() == nil
	})
	seen := map[string]bool{}
	for !seen["b"] || !seen["c"] {
		msg := sub.next(t)
		seen[string(msg.Data)] = true
		msg.Ack()
	}
	f.wantPending(t, 0)
}
