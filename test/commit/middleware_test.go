package commit_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
)

// TestOneEvalshaOnTheWire holds the promise of the first line of the README, on one server and on the cluster.
func TestOneEvalshaOnTheWire(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, proxied, direct redis.UniversalClient, seen func() [][]string) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, proxied, func(c *luatx.Config) { c.NoWakeUps = true })
		in := rig.NewInput(t, direct, rig.Key(t, tr, "a", "orders"))
		spent := rig.Key(t, tr, "a", "spent")
		r := rig.NewRouter(t, message.PipeConfig{}, rig.Scripted(t, tr), func(ctx context.Context) ([]*message.Message, error) {
			if err := luatx.Queued(luatx.CmdableFromContext(ctx, proxied).IncrBy(ctx, spent, 5)); err != nil {
				return nil, err
			}
			return []*message.Message{message.New("sold", message.Attributes{"type": "sold", "source": "/shop"}, nil)}, nil
		})
		warm := in.Deliver("c", rig.Order("warm")) // loads the script
		if _, err := r.Process(ctx, warm); err != nil {
			t.Fatal(err)
		}
		all, scripts := tally(seen())
		msg := in.Deliver("c", rig.Order("1"))
		if _, err := r.Process(ctx, msg); err != nil {
			t.Fatal(err)
		}
		if allNow, scriptsNow := tally(seen()); allNow != all+1 || scriptsNow != scripts+1 {
			t.Errorf("%d commands on the wire, %d of them EVALSHA", allNow-all, scriptsNow-scripts)
		}
		if direct.Get(ctx, spent).Val() != "10" || in.Pending() != 0 {
			t.Errorf("spent %s, %d entries pending", direct.Get(ctx, spent).Val(), in.Pending())
		}
		select {
		case <-msg.Settled():
		default:
			t.Error("the message is not settled")
		}
	}
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := redistest.Shared(t)
		proxy := redistest.Proxy(t, server.Addr())
		client := redistest.Client(t, proxy.Addr())
		run(t, client, server.Client(t), func() [][]string { return proxy.Commands(respproxy.Work) })
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		client, seen := rig.ProxiedCluster(t)
		run(t, client, redistest.SharedCluster(t).Client(t), seen)
	})
}

// tally counts commands, and the scripts among them.
func tally(commands [][]string) (all, scripts int) {
	for _, cmd := range commands {
		if strings.EqualFold(cmd[0], "evalsha") {
			scripts++
		}
	}
	return len(commands), scripts
}

// TestFailureLeavesNoTraceAndTheEntryPending holds that a handler that fails, panics, or whose third command is
// of the wrong type changes nothing, and leaves its message to be delivered again.
func TestFailureLeavesNoTraceAndTheEntryPending(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		in := rig.NewInput(t, client, rig.Key(t, tr, "a", "orders"))
		client.Set(ctx, rig.Key(t, tr, "a", "text"), "x", 0)
		var fault func(redis.Cmdable) error
		r := rig.NewRouter(t, message.PipeConfig{}, rig.Scripted(t, tr), func(ctx context.Context) ([]*message.Message, error) {
			c := luatx.CmdableFromContext(ctx, client)
			msg, _ := message.MessageFromContext(ctx)
			c.HSet(ctx, rig.Key(t, tr, "a", "hash"), msg.ID(), "v")
			c.SAdd(ctx, rig.Key(t, tr, "a", "set"), msg.ID())
			return []*message.Message{message.New("sold", message.Attributes{"type": "sold"}, nil)}, fault(c)
		})
		wrong := errors.New("wrong")
		for name, c := range map[string]struct {
			fault func(redis.Cmdable) error
			check func(error) bool
		}{
			"fails": {func(redis.Cmdable) error { return wrong }, func(err error) bool { return errors.Is(err, wrong) }},
			"panics": {func(redis.Cmdable) error { panic("oops") }, func(err error) bool {
				var p *message.PanicError
				return errors.As(err, &p)
			}},
			"third command": {func(c redis.Cmdable) error {
				c.LPush(ctx, rig.Key(t, tr, "a", "text"), "v")
				return c.Set(ctx, rig.Key(t, tr, "a", "late"), 1, 0).Err()
			}, func(err error) bool {
				var failed *luatx.CommandError
				return errors.As(err, &failed) && failed.Index == 2
			}},
		} {
			msg := in.Deliver("c", rig.Order(name))
			before := rig.Dump(t, client, tr)
			fault = c.fault
			if _, err := r.Process(ctx, msg); !c.check(err) {
				t.Errorf("%s: error %v", name, err)
			}
			if msg.Err() == nil {
				t.Errorf("%s: the message was not nacked", name)
			}
			rig.NoTrace(t, client, tr, before)
			fault = func(redis.Cmdable) error { return nil }
			again := in.Message("c", rig.EntryOf(t, msg), rig.Order(name))
			if _, err := r.Process(ctx, again); err != nil {
				t.Errorf("%s: delivered again: %v", name, err)
			}
			if in.Pending() != 0 {
				t.Errorf("%s: %d entries pending after the redelivery", name, in.Pending())
			}
		}
	})
}

// TestFenced holds that a consumer whose entry was claimed by another changes nothing, and neither acknowledges
// nor nacks.
func TestFenced(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		in := rig.NewInput(t, client, rig.Key(t, tr, "a", "orders"))
		n := rig.Key(t, tr, "a", "n")
		r := rig.NewRouter(t, message.PipeConfig{}, rig.Scripted(t, tr), func(ctx context.Context) ([]*message.Message, error) {
			return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, n))
		})
		slow := in.Deliver("slow", rig.Order("1"))
		if err := client.XClaim(ctx, &redis.XClaimArgs{Stream: in.Stream, Group: "g", Consumer: "quick", Messages: []string{rig.EntryOf(t, slow)}}).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Process(ctx, slow); !errors.Is(err, luatx.ErrFenced) {
			t.Errorf("the first consumer: %v", err)
		}
		select {
		case <-slow.Settled():
		default:
			t.Error("the first consumer's message is not released")
		}
		if slow.Err() != nil || in.Pending() != 1 || client.Exists(ctx, n).Val() != 0 {
			t.Errorf("the first consumer: err %v, %d pending, effect %d", slow.Err(), in.Pending(), client.Exists(ctx, n).Val())
		}
		if _, err := r.Process(ctx, in.Message("quick", rig.EntryOf(t, slow), rig.Order("1"))); err != nil {
			t.Errorf("the second consumer: %v", err)
		}
		if client.Get(ctx, n).Val() != "1" || in.Pending() != 0 {
			t.Errorf("applied %s times, %d pending", client.Get(ctx, n).Val(), in.Pending())
		}
		client.XGroupDestroy(ctx, in.Stream, "g")
		if _, err := r.Process(ctx, in.Message("quick", "1-1", rig.Order("2"))); !errors.Is(err, luatx.ErrFenced) {
			t.Errorf("a destroyed group: %v", err)
		}
	})
}

// TestFusedAckOnlyUnderAckOnSuccess: under the other strategies the handler, or a later stage, decides about the ack.
func TestFusedAckOnlyUnderAckOnSuccess(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	in := rig.NewInput(t, client, rig.Key(t, tr, "a", "orders"))
	elsewhere := rig.NewInput(t, client, rig.Key(t, tr, "b", "orders"))
	for name, c := range map[string]struct {
		strategy message.AckStrategy
		in       rig.Input
		outputs  int
		pending  int64 // once the chain has returned
		settled  bool
	}{
		"on success":                 {message.AckOnSuccess, in, 0, 0, true},
		"manual":                     {message.AckManual, in, 0, 1, false},
		"forward":                    {message.AckForward, in, 1, 1, false},
		"on success, another's slot": {message.AckOnSuccess, elsewhere, 0, 0, true},
	} {
		mw := message.Chain(luatx.Middleware(tr), inbox.Middleware(inbox.Config{}))
		if c.strategy == message.AckForward { // an inbox needs an outbox then
			mw = luatx.Middleware(tr)
		}
		r := rig.NewRouter(t, message.PipeConfig{AckStrategy: c.strategy}, mw, func(context.Context) ([]*message.Message, error) {
			return make([]*message.Message, c.outputs), nil
		})
		if c.outputs > 0 {
			r = rig.NewRouter(t, message.PipeConfig{AckStrategy: c.strategy}, mw, func(context.Context) ([]*message.Message, error) {
				return []*message.Message{message.New("out", nil, nil)}, nil
			})
		}
		msg := c.in.Deliver("c", rig.Order(name))
		if _, err := r.Process(ctx, msg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		settled := false
		select {
		case <-msg.Settled():
			settled = true
		default:
		}
		if c.in.Pending() != c.pending || settled != c.settled {
			t.Errorf("%s: %d entries pending, settled %t", name, c.in.Pending(), settled)
		}
		client.XAck(ctx, c.in.Stream, "g", rig.EntryOf(t, msg))
	}
}

// TestKnownBeforeNack holds that a duplicate whose handler fails because its effect is there is acknowledged.
func TestKnownBeforeNack(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		in := rig.NewInput(t, client, rig.Key(t, tr, "a", "orders"))
		account := rig.Key(t, tr, "a", "account")
		calls := 0
		r := rig.NewRouter(t, message.PipeConfig{}, rig.Scripted(t, tr), func(ctx context.Context) ([]*message.Message, error) {
			if client.Exists(ctx, account).Val() == 1 { // a read outside of the transaction
				if calls++; calls > 1 {
					panic("exists already")
				}
				return nil, errors.New("exists already")
			}
			return nil, luatx.CmdableFromContext(ctx, client).Set(ctx, account, "ann", 0).Err()
		})
		for range 3 {
			msg := in.Deliver("c", rig.Order("1"))
			if _, err := r.Process(ctx, msg); err != nil {
				t.Error(err)
			}
			if msg.Err() != nil {
				t.Errorf("nacked: %v", msg.Err())
			}
		}
		if in.Pending() != 0 {
			t.Errorf("%d entries pending", in.Pending())
		}
		other := in.Deliver("c", rig.Order("2"))
		if _, err := r.Process(ctx, other); err == nil || other.Err() == nil {
			t.Error("another message whose handler fails was acknowledged")
		}
	})
}
