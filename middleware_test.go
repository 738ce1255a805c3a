package luatx_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/redistest"
	"github.com/luatx/luatx/internal/respproxy"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
)

// input is a stream with a consumer group, read by hand.
type input struct {
	t      testing.TB
	client redis.UniversalClient
	stream string
}

func newInput(t testing.TB, client redis.UniversalClient, stream string) input {
	t.Helper()
	if err := client.XGroupCreateMkStream(t.Context(), stream, "g", "0").Err(); err != nil {
		t.Fatal(err)
	}
	return input{t, client, stream}
}

// deliver adds an entry and reads it as a consumer.
func (in input) deliver(consumer string, attrs message.Attributes) *message.Message {
	in.t.Helper()
	ctx := in.t.Context()
	in.client.XAdd(ctx, &redis.XAddArgs{Stream: in.stream, Values: []any{"id", attrs.ID()}})
	read, err := in.client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: consumer, Streams: []string{in.stream, ">"}, Count: 1}).Result()
	if err != nil || len(read[0].Messages) != 1 {
		in.t.Fatal(read, err)
	}
	return in.message(consumer, read[0].Messages[0].ID, attrs)
}

// message makes a message of an entry that a consumer owns.
func (in input) message(consumer, entry string, attrs message.Attributes) *message.Message {
	source := message.Source{Stream: in.stream, Group: "g", Consumer: consumer, Entry: entry}
	return message.New(nil, attrs, message.NewAckingFrom(message.AckingConfig{
		Ack:    func() { in.client.XAck(context.Background(), in.stream, "g", entry) },
		Source: source,
	}))
}

func (in input) pending() int64 {
	in.t.Helper()
	p, err := in.client.XPending(in.t.Context(), in.stream, "g").Result()
	if err != nil {
		in.t.Fatal(err)
	}
	return p.Count
}

func order(id string) message.Attributes {
	return message.Attributes{"id": id, "source": "/shop", "type": "order", "subject": "a"}
}

// router runs handle under the scripted stack.
func router(t testing.TB, cfg message.PipeConfig, mw message.Middleware, handle func(ctx context.Context) ([]*message.Message, error)) *message.Router {
	t.Helper()
	r := message.NewRouter(cfg)
	if err := r.Use(mw); err != nil {
		t.Fatal(err)
	}
	h := message.NewHandler(func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
		return handle(ctx)
	})
	if err := r.AddHandler("orders", nil, h); err != nil {
		t.Fatal(err)
	}
	return r
}

func scripted(t testing.TB, tr *luatx.Transactor) message.Middleware {
	t.Helper()
	mw, err := stack.Scripted(tr, stack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return mw
}

// TestOneEvalshaOnTheWire holds the promise of the first line of the README, on one server and on the cluster.
func TestOneEvalshaOnTheWire(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, proxied, direct redis.UniversalClient, seen func() [][]string) {
		ctx, tr := redistest.Soon(t), newTransactor(t, proxied, func(c *luatx.Config) { c.NoWakeUps = true })
		in := newInput(t, direct, key(t, tr, "a", "orders"))
		spent := key(t, tr, "a", "spent")
		r := router(t, message.PipeConfig{}, scripted(t, tr), func(ctx context.Context) ([]*message.Message, error) {
			if err := luatx.Queued(luatx.CmdableFromContext(ctx, proxied).IncrBy(ctx, spent, 5)); err != nil {
				return nil, err
			}
			return []*message.Message{message.New("sold", message.Attributes{"type": "sold", "source": "/shop"}, nil)}, nil
		})
		warm := in.deliver("c", order("warm")) // loads the script
		if _, err := r.Process(ctx, warm); err != nil {
			t.Fatal(err)
		}
		all, scripts := tally(seen())
		msg := in.deliver("c", order("1"))
		if _, err := r.Process(ctx, msg); err != nil {
			t.Fatal(err)
		}
		if allNow, scriptsNow := tally(seen()); allNow != all+1 || scriptsNow != scripts+1 {
			t.Errorf("%d commands on the wire, %d of them EVALSHA", allNow-all, scriptsNow-scripts)
		}
		if direct.Get(ctx, spent).Val() != "10" || in.pending() != 0 {
			t.Errorf("spent %s, %d entries pending", direct.Get(ctx, spent).Val(), in.pending())
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
		client, seen := proxiedCluster(t)
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
		ctx, tr := redistest.Soon(t), newTransactor(t, client)
		in := newInput(t, client, key(t, tr, "a", "orders"))
		client.Set(ctx, key(t, tr, "a", "text"), "x", 0)
		var fault func(redis.Cmdable) error
		r := router(t, message.PipeConfig{}, scripted(t, tr), func(ctx context.Context) ([]*message.Message, error) {
			c := luatx.CmdableFromContext(ctx, client)
			msg, _ := message.MessageFromContext(ctx)
			c.HSet(ctx, key(t, tr, "a", "hash"), msg.ID(), "v")
			c.SAdd(ctx, key(t, tr, "a", "set"), msg.ID())
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
				c.LPush(ctx, key(t, tr, "a", "text"), "v")
				return c.Set(ctx, key(t, tr, "a", "late"), 1, 0).Err()
			}, func(err error) bool {
				var failed *luatx.CommandError
				return errors.As(err, &failed) && failed.Index == 2
			}},
		} {
			msg := in.deliver("c", order(name))
			before := dump(t, client, tr)
			fault = c.fault
			if _, err := r.Process(ctx, msg); !c.check(err) {
				t.Errorf("%s: error %v", name, err)
			}
			if msg.Err() == nil {
				t.Errorf("%s: the message was not nacked", name)
			}
			noTrace(t, client, tr, before)
			fault = func(redis.Cmdable) error { return nil }
			again := in.message("c", entryOf(t, msg), order(name))
			if _, err := r.Process(ctx, again); err != nil {
				t.Errorf("%s: delivered again: %v", name, err)
			}
			if in.pending() != 0 {
				t.Errorf("%s: %d entries pending after the redelivery", name, in.pending())
			}
		}
	})
}

func entryOf(t testing.TB, msg *message.Message) string {
	t.Helper()
	source, ok := msg.InputSource()
	if !ok {
		t.Fatal("the message has no source")
	}
	return source.Entry
}

// TestFenced holds that a consumer whose entry was claimed by another changes nothing, and neither acknowledges
// nor nacks.
func TestFenced(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), newTransactor(t, client)
		in := newInput(t, client, key(t, tr, "a", "orders"))
		n := key(t, tr, "a", "n")
		r := router(t, message.PipeConfig{}, scripted(t, tr), func(ctx context.Context) ([]*message.Message, error) {
			return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, n))
		})
		slow := in.deliver("slow", order("1"))
		if err := client.XClaim(ctx, &redis.XClaimArgs{Stream: in.stream, Group: "g", Consumer: "quick", Messages: []string{entryOf(t, slow)}}).Err(); err != nil {
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
		if slow.Err() != nil || in.pending() != 1 || client.Exists(ctx, n).Val() != 0 {
			t.Errorf("the first consumer: err %v, %d pending, effect %d", slow.Err(), in.pending(), client.Exists(ctx, n).Val())
		}
		if _, err := r.Process(ctx, in.message("quick", entryOf(t, slow), order("1"))); err != nil {
			t.Errorf("the second consumer: %v", err)
		}
		if client.Get(ctx, n).Val() != "1" || in.pending() != 0 {
			t.Errorf("applied %s times, %d pending", client.Get(ctx, n).Val(), in.pending())
		}
		client.XGroupDestroy(ctx, in.stream, "g")
		if _, err := r.Process(ctx, in.message("quick", "1-1", order("2"))); !errors.Is(err, luatx.ErrFenced) {
			t.Errorf("a destroyed group: %v", err)
		}
	})
}

// TestFusedAckOnlyUnderAckOnSuccess holds that the entry is acknowledged inside the commit under that strategy,
// and under no other: there the handler, or what comes after, has yet to say.
func TestFusedAckOnlyUnderAckOnSuccess(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx, tr := redistest.Soon(t), newTransactor(t, client)
	in := newInput(t, client, key(t, tr, "a", "orders"))
	elsewhere := newInput(t, client, key(t, tr, "b", "orders"))
	for name, c := range map[string]struct {
		strategy message.AckStrategy
		in       input
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
		r := router(t, message.PipeConfig{AckStrategy: c.strategy}, mw, func(context.Context) ([]*message.Message, error) {
			return make([]*message.Message, c.outputs), nil
		})
		if c.outputs > 0 {
			r = router(t, message.PipeConfig{AckStrategy: c.strategy}, mw, func(context.Context) ([]*message.Message, error) {
				return []*message.Message{message.New("out", nil, nil)}, nil
			})
		}
		msg := c.in.deliver("c", order(name))
		if _, err := r.Process(ctx, msg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		settled := false
		select {
		case <-msg.Settled():
			settled = true
		default:
		}
		if c.in.pending() != c.pending || settled != c.settled {
			t.Errorf("%s: %d entries pending, settled %t", name, c.in.pending(), settled)
		}
		client.XAck(ctx, c.in.stream, "g", entryOf(t, msg))
	}
}

// TestKnownBeforeNack holds that a duplicate whose handler fails because its effect is there is acknowledged.
func TestKnownBeforeNack(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), newTransactor(t, client)
		in := newInput(t, client, key(t, tr, "a", "orders"))
		account := key(t, tr, "a", "account")
		calls := 0
		r := router(t, message.PipeConfig{}, scripted(t, tr), func(ctx context.Context) ([]*message.Message, error) {
			if client.Exists(ctx, account).Val() == 1 { // a read outside of the transaction
				if calls++; calls > 1 {
					panic("exists already")
				}
				return nil, errors.New("exists already")
			}
			return nil, luatx.CmdableFromContext(ctx, client).Set(ctx, account, "ann", 0).Err()
		})
		for range 3 {
			msg := in.deliver("c", order("1"))
			if _, err := r.Process(ctx, msg); err != nil {
				t.Error(err)
			}
			if msg.Err() != nil {
				t.Errorf("nacked: %v", msg.Err())
			}
		}
		if in.pending() != 0 {
			t.Errorf("%d entries pending", in.pending())
		}
		other := in.deliver("c", order("2"))
		if _, err := r.Process(ctx, other); err == nil || other.Err() == nil {
			t.Error("another message whose handler fails was acknowledged")
		}
	})
}

// proxiedCluster returns a client of the shared cluster whose connections go through proxies, and what they saw.
func proxiedCluster(t testing.TB) (*redis.ClusterClient, func() [][]string) {
	t.Helper()
	cluster := redistest.SharedCluster(t)
	proxies := make(map[string]*respproxy.Proxy)
	for _, addr := range cluster.Addrs() {
		proxies[addr] = redistest.Proxy(t, addr)
	}
	client := cluster.Client(t, func(o *redis.ClusterOptions) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			if p, ok := proxies[addr]; ok {
				addr = p.Addr()
			}
			return d.DialContext(ctx, network, addr)
		}
	})
	topology := func(cmd []string) bool {
		return !slices.Contains([]string{"cluster", "command", "readonly"}, strings.ToLower(cmd[0]))
	}
	return client, func() [][]string {
		var all [][]string
		for _, p := range proxies {
			all = append(all, p.Commands(respproxy.Work, topology)...)
		}
		return all
	}
}
