package stack_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

func TestConsumeDeliversAMessageAgainWhoseProcessorCallsGoexit(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s := newService(t, client, modes[1])
		key := s.streams("orders")[0]
		rig.Publish(t, client, key, rig.Order("1"))
		sub, err := stream.NewSubscriber(client, s.subscriberConfig(key))
		redistest.Must(t, err)
		var runs atomic.Int32
		process := stream.ProcessFunc(func(_ context.Context, msg *message.RawMessage) error {
			if runs.Add(1) <= 2 {
				runtime.Goexit()
			}
			msg.Ack()
			return nil
		})
		ctx, cancel := context.WithCancel(redistest.Soon(t))
		done := make(chan error, 1)
		go func() { done <- sub.Consume(ctx, s.transactor, process) }()
		redistest.Eventually(t, "the message to be acked", func() bool {
			return runs.Load() == 3 && client.XPending(t.Context(), key, "billing").Val().Count == 0
		})
		cancel()
		redistest.Must(t, <-done)
	})
}
