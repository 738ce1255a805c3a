package stack_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

func TestConsumeCommitsWithTheTransactorOfTheMiddleware(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s := newService(t, client, modes[1])
		other := rig.NewTransactor(t, client)
		key := s.streams("orders")[0]
		effect := other.Keyspace().TagKey("a", redistest.Tag(t))
		incr := func(ctx context.Context) error {
			return luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, effect))
		}
		router := rig.NewRouter(t, message.PipeConfig{}, message.Chain(luatx.Middleware(other), inbox.Middleware(inbox.Config{})), func(ctx context.Context) ([]*message.Message, error) {
			return nil, incr(ctx)
		})
		rig.Publish(t, client, key, rig.Order("1"))
		sub, err := stream.NewSubscriber(client, s.subscriberConfig(key))
		redistest.Must(t, err)
		ctx, cancel := context.WithCancel(redistest.Soon(t))
		done := make(chan error, 1)
		go func() { done <- sub.Consume(ctx, s.transactor, router) }()
		redistest.Eventually(t, "the message to be acked", func() bool {
			return client.Get(t.Context(), effect).Val() == "1" && client.XPending(t.Context(), key, "billing").Val().Count == 0
		})
		cancel()
		redistest.Must(t, <-done)
		_, err = other.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error { return incr(tx.Context(redistest.Soon(t))) })
		redistest.Must(t, err)
	})
}
