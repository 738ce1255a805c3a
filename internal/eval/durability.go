package eval

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Durability is the condition for which a commit, or a relay's claim, waits after its script. The wait uses the same
// connection, because the server waits for the writes of that connection. All calls of a round trip share one wait.
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

// wait returns the command that waits. It waits for at most half of the remaining time, so that the script's reply
// still arrives.
func (d Durability) wait(ctx context.Context) *redis.Cmd {
	timeout := d.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline)/2)
	}
	ms := max(1, timeout.Milliseconds()) // 0 would wait forever
	if d.Fsync {
		return redis.NewCmd(ctx, "waitaof", 1, d.Replicas, ms)
	}
	return redis.NewCmd(ctx, "wait", d.Replicas, ms)
}

// reached reports whether the reply to the wait confirms everything that d requires.
func (d Durability) reached(reply any) bool {
	if !d.Fsync {
		return Number(reply) >= d.Replicas
	}
	counts, _ := reply.([]any)
	return len(counts) == 2 && Number(counts[0]) >= 1 && Number(counts[1]) >= d.Replicas
}

// ReadTimeout returns the time for which the client waits for a reply. It returns 0 if the client waits forever, or if
// the time is unknown.
func (r *Runner) ReadTimeout() time.Duration { return ReadTimeout(r.client) }

// ReadTimeout returns the time for which a client waits for a reply. It returns 0 if the client waits forever, or if
// the time is unknown.
func ReadTimeout(client redis.UniversalClient) time.Duration {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ReadTimeout
	case *redis.ClusterClient:
		return c.Options().ReadTimeout
	}
	return 0
}

// transmitDurably makes the round trip on the node itself, because a cluster client could send the wait to any node. If a slot
// has moved, the node's error makes the client look for the new node.
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
		r.log.Warn("luatx: replication wait refused", "error", wait.Err())
	}
}
