package pipeline_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/pipeline"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
)

// commands returns a Router that runs handle in a pipeline.
func commands(t testing.TB, client redis.UniversalClient, handle func(redis.Cmdable) error) *message.Router {
	t.Helper()
	return rig.NewRouter(t, message.PipeConfig{}, pipeline.Middleware(client), func(ctx context.Context) ([]*message.Message, error) {
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

func TestCommandsAreSentInOneExecAfterTheHandlerSucceeds(t *testing.T) {
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
			var queued redis.Pipeliner
			var count *redis.IntCmd
			r := commands(t, proxied, func(cmds redis.Cmdable) error {
				queued = cmds.(redis.Pipeliner)
				if err := cmds.HSet(ctx, tag+name+"h", "f", "v").Err(); err != nil {
					return err
				}
				count = cmds.IncrBy(ctx, tag+name+"n", 5)
				if got := len(seen()); got != before {
					t.Errorf("%s: %v was sent before the handler returned", name, seen()[before:])
				}
				return c.handle(cmds)
			})
			msg := message.New(nil, rig.Order(name), message.NewAcking(nil, nil))
			outputs, err := r.Process(ctx, msg)
			if len(outputs) != c.outputs || errors.Is(err, wrong) != (c.outputs == 0) {
				t.Errorf("%s: %d outputs, error %v", name, len(outputs), err)
			}
			if n := queued.Len(); n > 0 && name != "panics" {
				t.Errorf("%s: %d commands are still queued", name, n)
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
		client, seen := rig.ProxiedCluster(t)
		run(t, client, redistest.SharedCluster(t).Client(t), seen)
	})
}

func TestFailedCommandInExecIsAnErrorAndOthersTakeEffect(t *testing.T) {
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
			msg := message.New(nil, rig.Order(name), message.NewAcking(nil, nil))
			outputs, err := commands(t, client, func(cmds redis.Cmdable) error { c.handle(cmds); return nil }).Process(ctx, msg)
			if got := client.Get(ctx, tag+name).Val(); got != "2" {
				t.Errorf("%s: the commands around have counted %q", name, got)
			}
			if c.failed < 0 {
				if err != nil || len(outputs) != 1 {
					t.Errorf("%s: %d outputs, %v", name, len(outputs), err)
				}
				continue
			}
			var failed *pipeline.Error
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

// TestRedeliveryAppliesAMessageAgainIfTheReplyOfExecIsLost shows the documented gap of pipeline mode.
func TestRedeliveryAppliesAMessageAgainIfTheReplyOfExecIsLost(t *testing.T) {
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
	r := rig.NewRouter(t, message.PipeConfig{}, mw, func(ctx context.Context) ([]*message.Message, error) {
		return nil, luatx.CmdableFromContext(ctx, client).Incr(ctx, n).Err()
	})
	for delivery, lost := range []bool{true, false, false} {
		msg := message.New(nil, rig.Order(n), message.NewAcking(nil, nil))
		_, err := r.Process(ctx, msg)
		if failed := new(pipeline.Error); errors.As(err, &failed) != lost || (msg.Err() != nil) != lost {
			t.Errorf("delivery %d: %v, nacked with %v", delivery, err, msg.Err())
		}
	}
	if got := direct.Get(ctx, n).Val(); got != "2" {
		t.Errorf("applied %s times; the documentation says 2", got)
	}
}

func TestPipelineRejectsKeysOfTwoSlots(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.SharedCluster(t).Client(t), redistest.Soon(t)
	tag := redistest.Tag(t)
	r := commands(t, client, func(cmds redis.Cmdable) error {
		cmds.Set(ctx, "{"+tag+"}", 1, 0)
		return cmds.Set(ctx, "{"+tag+"x}", 1, 0).Err()
	})
	_, err := r.Process(ctx, message.New(nil, rig.Order("1"), message.NewAcking(nil, nil)))
	if failed := new(pipeline.Error); !errors.As(err, &failed) || !errors.Is(err, redis.ErrCrossSlot) {
		t.Errorf("error %v", err)
	}
	if client.Exists(ctx, "{"+tag+"}").Val()+client.Exists(ctx, "{"+tag+"x}").Val() != 0 {
		t.Error("a part was written")
	}
}

func TestPipelineInsidePipelineReturnsErrNested(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	mw := message.Chain(pipeline.Middleware(client), pipeline.Middleware(client))
	r := rig.NewRouter(t, message.PipeConfig{}, mw, func(context.Context) ([]*message.Message, error) {
		t.Error("the handler ran")
		return nil, nil
	})
	if _, err := r.Process(redistest.Soon(t), message.New(nil, rig.Order("1"), nil)); !errors.Is(err, luatx.ErrNested) {
		t.Errorf("error %v", err)
	}
}
