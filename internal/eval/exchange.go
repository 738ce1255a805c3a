package eval

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/piped"
)

// direct makes a separate round trip for each call.
func (r *Runner) direct(ctx context.Context, calls []*Call) {
	for i, c := range calls {
		bounded, cancel := within(ctx, c.Until)
		r.trip(bounded, calls[i:i+1])
		cancel()
	}
}

// trip makes the round trip of a single call.
func (r *Runner) trip(ctx context.Context, call []*Call) {
	call[0].pack()
	r.exchange(ctx, call)
	call[0].settle()
}

// pipeline makes one round trip for calls and the tail, without other calls. On a cluster, go-redis makes one to each master.
func (r *Runner) pipeline(ctx context.Context, calls []*Call, tail ...redis.Cmder) {
	ctx, cancel := within(ctx, calls[0].Until)
	defer cancel()
	for _, c := range calls {
		c.in = nil
	}
	if calls[0].Wait.On() {
		r.eachMaster(ctx, calls, tail)
	} else {
		r.exchange(ctx, share(calls), tail...)
	}
	for _, c := range calls {
		c.settle()
	}
}

// eachMaster makes a round trip to each master, because a wait concerns the writes of one connection. The keys of the tail
// may belong to another master, so on a cluster the tail has a round trip of its own.
func (r *Runner) eachMaster(ctx context.Context, calls []*Call, tail []redis.Cmder) {
	var trips sync.WaitGroup
	defer trips.Wait()
	if _, cluster := r.client.(*redis.ClusterClient); cluster && len(tail) > 0 {
		last := tail
		tail = nil
		trips.Go(func() {
			p := r.client.Pipeline()
			_ = p.BatchProcess(ctx, last...)
			_, _ = piped.Exec(ctx, p) // each command holds its error
		})
	}
	masters := make(map[string][]*Call)
	for _, c := range calls {
		node := r.queue.node(ctx, c.Key)
		masters[node] = append(masters[node], c)
	}
	for _, some := range masters {
		trips.Go(func() { r.exchange(ctx, share(some), tail...) })
	}
}

// exchange makes one round trip with calls on one node, and a second one for scripts that the server did not have. The
// tail is sent once, after the calls, and carries its own errors.
func (r *Runner) exchange(ctx context.Context, calls []*Call, tail ...redis.Cmder) {
	r.transmit(ctx, calls, tail...)
	var forgotten []*Call
	for _, c := range calls {
		if c.err != nil && redis.HasErrorPrefix(c.err, "NOSCRIPT") {
			forgotten = append(forgotten, c)
		}
	}
	if len(forgotten) == 0 {
		return
	}
	var loaded *Script
	for _, c := range forgotten {
		if c.Script == loaded {
			continue
		}
		if err := r.load(ctx, c); err != nil {
			for _, c := range forgotten {
				c.err = unsentError{err}
			}
			return
		}
		loaded = c.Script
	}
	r.transmit(ctx, forgotten)
}

func (r *Runner) transmit(ctx context.Context, calls []*Call, tail ...redis.Cmder) {
	switch {
	case calls[0].Wait.On():
		r.transmitDurably(ctx, calls, tail...)
	case len(calls) == 1 && len(tail) == 0 && len(calls[0].Ahead) == 0:
		cmd := calls[0].command(ctx)
		_ = r.client.Process(ctx, cmd) // the command holds its error
		calls[0].answer(cmd)
	default:
		pipe(ctx, r.client, calls, tail...)
		for _, c := range calls {
			if c.err == nil {
				continue
			}
			if redis.HasErrorPrefix(c.err, "MOVED") || redis.HasErrorPrefix(c.err, "ASK") {
				c.err = redirectError{c.err.Error()}
			}
		}
	}
}

// pipe makes the round trip as one pipeline.
func pipe(ctx context.Context, client redis.UniversalClient, calls []*Call, tail ...redis.Cmder) {
	p := client.Pipeline()
	cmds := make([]once, len(calls))
	for i, c := range calls {
		for _, argv := range c.Ahead {
			cmd := once{redis.NewCmd(ctx, argv...)}
			cmd.SetFirstKeyPos(1)
			_ = p.Process(ctx, cmd)
		}
		cmds[i] = c.command(ctx)
		_ = p.Process(ctx, cmds[i]) // queues the command
	}
	_ = p.BatchProcess(ctx, tail...)
	_, _ = piped.Exec(ctx, p) // each command holds its error
	for i, c := range calls {
		c.answer(cmds[i])
		c.together = c.together || len(calls) > 1
	}
}

// redirectError is a redirection that a pipeline could not follow. It is not final. go-redis returns it if the target
// node does not respond.
type redirectError struct{ text string }

func (e redirectError) Error() string { return "redirected: " + e.text }

// load loads a script on the node of the call's first key.
func (r *Runner) load(ctx context.Context, c *Call) error {
	node, err := r.master(ctx, c.Argv[FirstKey])
	if err != nil {
		return err
	}
	return node.ScriptLoad(ctx, c.Script.Text).Err()
}

// master returns the client of the node of a key.
func (r *Runner) master(ctx context.Context, key any) (redis.UniversalClient, error) {
	cluster, ok := r.client.(interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	})
	if !ok {
		return r.client, nil
	}
	name, _ := key.(string)
	return cluster.MasterForKey(ctx, name)
}
