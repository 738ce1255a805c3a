package stack_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/message/middleware"
)

func TestWritesOfAFailedAttemptAreNotCommitted(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for _, m := range modes {
			s := newService(t, client, m)
			mw, err := m.wire(s)
			redistest.Must(t, err)
			counter, err := s.keyspace.Key("a", "counter")
			redistest.Must(t, err)
			retry := middleware.Retry(middleware.RetryConfig{})
			for place, c := range map[string]struct {
				mw   message.Middleware
				want string // of the counter
			}{"inside": {message.Chain(mw, retry), ""}, "outside": {message.Chain(retry, mw), "1"}} {
				attempts := 0
				router := rig.NewRouter(t, message.PipeConfig{}, c.mw, func(ctx context.Context) ([]*message.Message, error) {
					if attempts++; attempts == 1 {
						return nil, errors.Join(luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, counter)), errors.New("the bank is busy"))
					}
					return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, counter))
				})
				_, err := router.Process(redistest.Soon(t), message.New(nil, rig.Order(place), nil))
				if c.want == "" {
					wantUnsafe(t, err, "put middleware.Retry before "+map[string]string{"scripted": "luatx", "pipelined": "pipeline"}[m.name]+".Middleware")
				} else {
					redistest.Must(t, err)
				}
				got := client.Get(t.Context(), counter).Val()
				redistest.Must(t, client.Del(t.Context(), counter).Err())
				if got != c.want {
					t.Errorf("%s, Retry %s the stack: the counter is %q, want %q", m.name, place, got, c.want)
				}
			}
		}
	})
}
