package eval

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Ask calls f with a client of the node that serves a key. It returns when f succeeds or the server rejects the
// request for good, and tries again after every other error, as Eval does, until ctx ends. It passes the error of each
// failed try to failed.
func (r *Runner) Ask(ctx context.Context, key string, failed func(error), f func(ctx context.Context, node redis.UniversalClient) error) error {
	for try := 0; ; try++ {
		node, err := r.master(ctx, key)
		if err == nil {
			err = f(ctx, node)
		}
		if err == nil || answered(err) && !passes(err) {
			return err
		}
		failed(err)
		r.reload(ctx, err)
		if !pause(ctx, try) {
			return err
		}
	}
}

// Node returns the address of the node that serves a key, or "" if the client is not a cluster's. The cluster's
// state must be loaded, as Ask does.
func (r *Runner) Node(ctx context.Context, key string) string {
	return r.queue.node(ctx, key)
}
