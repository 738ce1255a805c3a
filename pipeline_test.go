package luatx_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/redistest"
	"github.com/luatx/luatx/internal/respproxy"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
)

// pipelined runs handle in a pipeline.
func pipelined(t testing.TB, client redis.UniversalClient, handle func(redis.Cmdable) error) *message.Router {
	t.Helper()
	return router(t, message.PipeConfig{}, luatx.PipelineMiddleware(client), func(ctx context.Context) ([]*message.Message, error) {
		return []*message.Message{message.New("out", nil, nil)}, handle(luatx.CmdableFromContext(ctx, client))
	})
}

func names(commands [][]string) []string {
	var names []string
	for _, cmd := range commands {
		names = append(names, strings.ToLower(cmd[0]))
	}
	return names
}

// TestPipelineOnTheWire holds that a handler's commands travel in one MULTI … EXEC after it has returned, that
// its outputs are passed on, and that nothing is sent for a handler that fails, panics or queues nothing.
func TestPipelineOnTheWire(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, proxied, direct redis.UniversalClient, seen func() [][]string) {
		tag, wrong := "{"+redistest.Tag(t)+"}:", errors.New("wrong")
		for name, c := range map[string]struct {
			handle  func(redis.Cmdable) error
			outputs int
			wire    []string
		}{
			"commits": {func(redis.Cmdable) error { return nil }, 1, []string{"multi", "hset", "incrby", "exec"}},
			"fails":   {func(redis.Cmdable) error { return wrong }, 0, nil},
			"panics":  {func(redis.Cmdable) error { panic(wrong) }, 0, nil},
			"discards": {func(c redis.Cmdable) error {
				c.(redis.Pipeliner).Discard()
				return nil
			}, 1, nil},
		} {
			ctx, before := redistest.Soon(t), len(seen())
			var count *redis.IntCmd
			r := pipelined(t, proxied, func(cmds redis.Cmdable) error {
				if err := cmds.HSet(ctx, tag+name+"h", "f", "v").Err(); err != nil {
					return err
				}
				count = cmds.IncrBy(ctx, tag+name+"n", 5)
				if got := len(seen()); got != before {
					t.Errorf("%s: %v was sent before the handler returned", name, seen()[before:])
				}
				return c.handle(cmds)
			})
			msg := message.New(nil, order(name), message.NewAcking(nil, nil))
			outputs, err := r.Process(ctx, msg)
			if len(outputs) != c.outputs || errors.Is(err, wrong) != (c.outputs == 0) {
				t.Errorf("%s: %d outputs, error %v", name, len(outputs), err)
			}
			if wire := names(seen()[before:]); !slices.Equal(wire, c.wire) {
				t.Errorf("%s: on the wire %v, want %v", name, wire, c.wire)
			}
			left := direct.Exists(ctx, tag+name+"h").Val() + direct.Exists(ctx, tag+name+"n").Val()
			if applied := c.wire != nil; applied != (left == 2) || applied != (count.Val() == 5) || !applied && left != 0 {
				t.Errorf("%s: %d keys, the count's reply %d", name, left, count.Val())
			}
		}
	}
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := redistest.Shared(t)
		proxy := redistest.Proxy(t, server.Addr())
		run(t, redistest.Client(t, proxy.Addr()), server.Client(t), func() [][]string { return proxy.Commands(respproxy.Work) })
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		client, seen := proxiedCluster(t)
		run(t, client, redistest.SharedCluster(t).Client(t), seen)
	})
}

// TestPipelineErrors holds that a command that failed in EXEC is an error with every command's own one, also
// behind an empty reply, which is none; and that the others have taken effect, as Redis has it.
func TestPipelineErrors(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tag := "{" + redistest.Tag(t) + "}:"
		ctx := redistest.Soon(t)
		client.Set(ctx, tag+"text", "x", 0)
		for name, c := range map[string]struct {
			handle func(redis.Cmdable)
			failed int // index of the command; -1: none
		}{
			"the second": {func(c redis.Cmdable) {
				c.Incr(ctx, tag+"the second")
				c.LPush(ctx, tag+"text", "v")
				c.Incr(ctx, tag+"the second")
			}, 1},
			"behind an empty reply": {func(c redis.Cmdable) {
				c.Incr(ctx, tag+"behind an empty reply")
				c.Get(ctx, tag+"nothing")
				c.LPush(ctx, tag+"text", "v")
				c.Incr(ctx, tag+"behind an empty reply")
			}, 2},
			"an empty reply alone": {func(c redis.Cmdable) {
				c.Incr(ctx, tag+"an empty reply alone")
				c.Get(ctx, tag+"nothing")
				c.Incr(ctx, tag+"an empty reply alone")
			}, -1},
		} {
			msg := message.New(nil, order(name), message.NewAcking(nil, nil))
			outputs, err := pipelined(t, client, func(cmds redis.Cmdable) error { c.handle(cmds); return nil }).Process(ctx, msg)
			if got := client.Get(ctx, tag+name).Val(); got != "2" {
				t.Errorf("%s: the commands around have counted %q", name, got)
			}
			if c.failed < 0 {
				if err != nil || len(outputs) != 1 {
					t.Errorf("%s: %d outputs, %v", name, len(outputs), err)
				}
				continue
			}
			var failed *luatx.PipelineError
			if !errors.As(err, &failed) || !strings.HasPrefix(err.Error(), "redis tx exec: WRONGTYPE") || outputs != nil {
				t.Errorf("%s: error %v", name, err)
				continue
			}
			for i, cmd := range failed.Commands {
				if is := cmd.Err() != nil && !errors.Is(cmd.Err(), redis.Nil); is != (i == c.failed) {
					t.Errorf("%s: command %d (%s): %v", name, i, cmd.Name(), cmd.Err())
				}
			}
			if redisErr := redis.Error(nil); !errors.As(err, &redisErr) || msg.Err() == nil {
				t.Errorf("%s: the server's error is lost in %v, or the message was not nacked: %v", name, err, msg.Err())
			}
		}
	})
}

// TestPipelineUnanswered holds the gap that the documentation names: where the reply to EXEC is lost, the message
// has been applied and fails, its mark is taken back, and its redelivery applies it once more.
func TestPipelineUnanswered(t *testing.T) {
	t.Parallel()
	ctx, server, n := redistest.Soon(t), redistest.Shared(t), redistest.Tag(t)
	direct := server.Client(t)
	proxy := redistest.Proxy(t, server.Addr())
	client := redistest.Client(t, proxy.Addr())
	proxy.DropReply(1, respproxy.Command("EXEC"))
	mw, err := stack.Pipelined(client, stack.Config{OutboxStream: n + ":out"})
	if err != nil {
		t.Fatal(err)
	}
	r := router(t, message.PipeConfig{}, mw, func(ctx context.Context) ([]*message.Message, error) {
		return nil, luatx.CmdableFromContext(ctx, client).Incr(ctx, n).Err()
	})
	for delivery, lost := range []bool{true, false, false} {
		msg := message.New(nil, order(n), message.NewAcking(nil, nil))
		_, err := r.Process(ctx, msg)
		if failed := new(luatx.PipelineError); errors.As(err, &failed) != lost || (msg.Err() != nil) != lost {
			t.Errorf("delivery %d: %v, nacked with %v", delivery, err, msg.Err())
		}
	}
	if got := direct.Get(ctx, n).Val(); got != "2" {
		t.Errorf("applied %s times; the documentation says 2", got)
	}
}

// TestPipelineRefusesTwoSlots holds that a cluster is not sent half a transaction.
func TestPipelineRefusesTwoSlots(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.SharedCluster(t).Client(t), redistest.Soon(t)
	tag := redistest.Tag(t)
	r := pipelined(t, client, func(cmds redis.Cmdable) error {
		cmds.Set(ctx, "{"+tag+"}", 1, 0)
		return cmds.Set(ctx, "{"+tag+"x}", 1, 0).Err()
	})
	_, err := r.Process(ctx, message.New(nil, order("1"), message.NewAcking(nil, nil)))
	if failed := new(luatx.PipelineError); !errors.As(err, &failed) || !errors.Is(err, redis.ErrCrossSlot) {
		t.Errorf("error %v", err)
	}
	if client.Exists(ctx, "{"+tag+"}").Val()+client.Exists(ctx, "{"+tag+"x}").Val() != 0 {
		t.Error("a part was written")
	}
}

// TestPipelineNested holds that there is one pipeline a message.
func TestPipelineNested(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	mw := message.Chain(luatx.PipelineMiddleware(client), luatx.PipelineMiddleware(client))
	r := router(t, message.PipeConfig{}, mw, func(context.Context) ([]*message.Message, error) {
		t.Error("the handler ran")
		return nil, nil
	})
	if _, err := r.Process(redistest.Soon(t), message.New(nil, order("1"), nil)); !errors.Is(err, luatx.ErrNested) {
		t.Errorf("error %v", err)
	}
}

// TestContexts holds what adapters find in a context: the transaction, else the pipeline, else their own client.
func TestContexts(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	plain := redistest.Soon(t)
	if pipe, ok := luatx.PipelineFromContext(plain); ok || pipe != nil {
		t.Errorf("a plain context carries %v", pipe)
	}
	if got := luatx.CmdableFromContext(plain, client); got != redis.Cmdable(client) {
		t.Errorf("a plain context leads to %v", got)
	}
	pipe := client.TxPipeline()
	carrying := luatx.ContextWithPipeline(plain, pipe)
	if got, ok := luatx.PipelineFromContext(carrying); !ok || got != pipe {
		t.Errorf("the pipeline came back as %v, %t", got, ok)
	}
	if got := luatx.CmdableFromContext(carrying, client); got != redis.Cmdable(pipe) {
		t.Errorf("with a pipeline adapters get %v", got)
	}
	if _, ok := luatx.TxFromContext(carrying); ok {
		t.Error("a pipeline passes for a transaction")
	}
	inner := client.TxPipeline()
	if got, _ := luatx.PipelineFromContext(luatx.ContextWithPipeline(carrying, inner)); got != inner {
		t.Error("the outer pipeline hides the inner one")
	}

	tr := newTransactor(t, client)
	if _, err := tr.Transact(plain, "a", func(tx *luatx.Tx) error {
		ctx := tx.Context(carrying)
		if got, ok := luatx.TxFromContext(ctx); !ok || got != tx {
			t.Errorf("the transaction came back as %v, %t", got, ok)
		}
		if got, ok := luatx.PipelineFromContext(ctx); !ok || got != tx.Pipeline() {
			t.Errorf("the transaction's pipeline came back as %v, %t", got, ok)
		}
		return luatx.CmdableFromContext(ctx, client).Set(ctx, key(t, tr, "a", "k"), "v", 0).Err()
	}); err != nil {
		t.Fatal(err)
	}
	if pipe.Len() != 0 || client.Get(plain, key(t, tr, "a", "k")).Val() != "v" {
		t.Errorf("the write went to the pipeline around: %d commands on it", pipe.Len())
	}
}
