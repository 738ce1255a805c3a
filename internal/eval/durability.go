package eval

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Durability is what a commit, or a relay's claim, waits for behind its script, on the connection that wrote: there the server knows
// which of its writes to wait for. One wait serves everything that shares the round trip.
type Durability struct {
	Replicas int
	Fsync    bool
	Timeout  time.Duration
}

// On reports whether a call waits for anything.
func (d Durability) On() bool { return d.Replicas > 0 || d.Fsync }

// Patient reports whether the caller has time for a full wait. A caller without that time does not share the
// wait, because its deadline would pass before the reply.
func (d Durability) Patient(ctx context.Context, until time.Time) bool {
	deadline, ok := ends(ctx, until)
	return !ok || time.Until(deadline) >= 2*d.Timeout
}

// wait is the command that waits: half the time that is left at most, so that the reply of the script arrives.
func (d Durability) wait(ctx context.Context) *redis.Cmd {
	timeout := d.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline)/2)
	}
	ms := max(1, timeout.Milliseconds()) // none would be for ever
	if d.Fsync {
		return redis.NewCmd(ctx, "waitaof", 1, d.Replicas, ms)
	}
	return redis.NewCmd(ctx, "wait", d.Replicas, ms)
}

// reached reports whether the wait's reply says that all is there.
func (d Durability) reached(reply any) bool {
	if !d.Fsync {
		return Number(reply) >= d.Replicas
	}
	counts, _ := reply.([]any)
	return len(counts) == 2 && Number(counts[0]) >= 1 && Number(counts[1]) >= d.Replicas
}

// ReadTimeout is how long the client waits for a reply; 0: forever, or unknown.
func (r *Runner) ReadTimeout() time.Duration { return ReadTimeout(r.client) }

// ReadTimeout is how long a client waits for a reply; 0: for ever, or nobody knows.
func ReadTimeout(client redis.UniversalClient) time.Duration {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ReadTimeout
	case *redis.ClusterClient:
		return c.Options().ReadTimeout
	}
	return 0
}

// transmitDurably makes the round trip on the node itself: a cluster's client would send the wait to any. What
// the node does not have any more it says, and the client looks for the new one.
func (r *Runner) transmitDurably(ctx context.Context, calls []*Call, tail ...redis.Cmder) {
	node, err := r.master(ctx, calls[0].Argv[FirstKey])
	if err != nil {
		for _, c := range calls {
			c.err = unsentError{err}
		}
		return
	}
	d := calls[0].Wait
	wait := d.wait(ctx)
	pipe(ctx, node, calls, append([]redis.Cmder{wait}, tail...)...)
	reached := wait.Err() == nil && d.reached(wait.Val())
	for _, c := range calls {
		c.reached = reached
	}
	if answered(wait.Err()) && r.warned.CompareAndSwap(false, true) {
		r.log.Warn("luatx: commits are not known to be replicated: the server refuses to wait for it", "error", wait.Err())
	}
}
