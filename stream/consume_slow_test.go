package stream_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

func TestMessagesReadWithACommitDoNotWaitForASlowHandlerOfItsBatch(t *testing.T) {
	t.Parallel()
	f := shared(t)
	tr := rig.NewTransactor(t, f.client)
	effects := rig.Key(t, tr, "a0", "effects")
	router := message.NewRouter(message.PipeConfig{})
	redistest.Must(t, router.Use(luatx.Middleware(tr), inbox.Middleware(inbox.Config{})))
	redistest.Must(t, router.AddHandler("orders", nil, message.NewHandler(
		func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
			return nil, luatx.Queued(luatx.CmdableFromContext(ctx, f.client).Incr(ctx, effects))
		})))
	gates := map[string]chan struct{}{"slow": make(chan struct{}), "fast": make(chan struct{}), "other": make(chan struct{})}
	var mu sync.Mutex
	var begun []string
	process := stream.ProcessFunc(func(ctx context.Context, msg *message.RawMessage) error {
		mu.Lock()
		begun = append(begun, msg.ID())
		mu.Unlock()
		if gate := gates[msg.ID()]; gate != nil {
			<-gate
		}
		return router.ProcessRaw(ctx, msg)
	})
	has := func(ids ...string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return !slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(begun, id) })
		}
	}
	add := func(ids ...string) {
		_, err := f.client.TxPipelined(t.Context(), func(pipe redis.Pipeliner) error {
			for _, id := range ids {
				pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: f.key, Values: []any{"id", id, "type", "orders", "subject", "a0", "data", "{}"}})
			}
			return nil
		})
		redistest.Must(t, err)
	}

	add("slow", "fast")
	cfg := f.config()
	cfg.BatchSize = 2
	sub, err := stream.NewSubscriber(f.client, cfg)
	redistest.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- sub.Consume(ctx, tr, process) }()
	redistest.Eventually(t, "the first batch", has("slow", "fast"))
	add("other", "another")
	redistest.Eventually(t, "the second batch", has("other"))
	f.wantPending(t, 3) // another is committed
	add("late")
	close(gates["fast"])
	redistest.Eventually(t, "a read with the commit", func() bool {
		last, err := f.client.XInfoGroups(t.Context(), f.key).Result()
		redistest.Must(t, err)
		return len(f.pending(t)) == 3 && last[0].LastDeliveredID == f.lastID(t)
	})
	close(gates["other"])
	redistest.Eventually(t, "the message that was read with the commit", has("late"))
	close(gates["slow"])
	f.wantPending(t, 0)
	cancel()
	redistest.Must(t, <-ended)
}

// lastID returns the id of the last entry of the stream.
func (f *fixture) lastID(t *testing.T) string {
	t.Helper()
	last, err := f.client.XRevRangeN(t.Context(), f.key, "+", "-", 1).Result()
	redistest.Must(t, err)
	return last[0].ID
}
