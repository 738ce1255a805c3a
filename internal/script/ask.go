package script

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Ask calls f with a client of the node that serves a shard. It returns when f succeeds or the server rejects the
// request for good, and tries again after every other error, as eval does, until ctx ends. It passes the error of each
// failed try to failed.
func (s *Set) Ask(ctx context.Context, shard Shard, failed func(error), f func(ctx context.Context, node redis.UniversalClient) error) error {
	for try := 0; ; try++ {
		node, err := s.master(ctx, shard.commit[0])
		if err == nil {
			err = f(ctx, node)
		}
		if err == nil || answered(err) && !passes(err) {
			return err
		}
		failed(err)
		s.reload(ctx, err)
		if !pause(ctx, try) {
			return err
		}
	}
}

// Node returns the address of the node that serves a shard, or "" if the client is not a cluster's. The cluster's
// state must be loaded, as Ask does.
func (s *Set) Node(ctx context.Context, shard Shard) string {
	return s.queue.node(ctx, shard)
}
