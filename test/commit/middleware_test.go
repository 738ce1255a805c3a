package commit_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/pipeline"
	"github.com/luatx/luatx/stack"
)

func TestMessageCostsOneEvalshaOnTheWire(t *testing.T) {
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
		_, err := r.Process(ctx, warm)
		redistest.Must(t, err)
		all, scripts := tally(seen())
		msg := in.Deliver("c", rig.Order("1"))
		_, err = r.Process(ctx, msg)
		redistest.Must(t, err)
		if allNow, scriptsNow := tally(seen()); allNow != all+1 || scriptsNow != scripts+1 {
			t.Errorf("%d commands on the wire, %d of them EVALSHA", allNow-all, scriptsNow-scripts)
		}
		if direct.Get(ctx, spent).Val() != "10" || in.Pending() != 0 {
			t.Errorf("spent %s, %d entries pending", direct.Get(ctx, spent).Val(), in.Pending())
		}
		if !rig.Settled(msg) {
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
			"refused command": {func(c redis.Cmdable) error {
				c.FlushAll(ctx) // an adapter that ignores the error
				return nil
			}, func(err error) bool { return errors.Is(err, luatx.ErrCommandRefused) }},
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
			assert.NoError(t, assert.ErrOf(r.Process(ctx, again)), "%s: delivered again", name)
			assert.Equal(t, in.Pending(), 0, "%s: pending entries after the redelivery", name)
		}
	})
}

func TestConsumerThatLostItsEntryNeitherChangesNorSettlesAnything(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		in := rig.NewInput(t, client, rig.Key(t, tr, "a", "orders"))
		n := rig.Key(t, tr, "a", "n")
		r := rig.NewCounter(t, tr, client, n)
		slow := in.Deliver("slow", rig.Order("1"))
		in.TakeOver("quick", rig.EntryOf(t, slow))
		assert.Is(t, assert.ErrOf(r.Process(ctx, slow)), luatx.ErrFenced, "the first consumer")
		if !rig.Settled(slow) {
			t.Error("the first consumer's message is not released")
		}
		if slow.Err() != nil || in.Pending() != 1 || client.Exists(ctx, n).Val() != 0 {
			t.Errorf("the first consumer: err %v, %d pending, effect %d", slow.Err(), in.Pending(), client.Exists(ctx, n).Val())
		}
		assert.NoError(t, assert.ErrOf(r.Process(ctx, in.Message("quick", rig.EntryOf(t, slow), rig.Order("1")))), "the second consumer")
		if client.Get(ctx, n).Val() != "1" || in.Pending() != 0 {
			t.Errorf("applied %s times, %d pending", client.Get(ctx, n).Val(), in.Pending())
		}
	})
}

// TestFusedAckOnlyUnderAckOnSuccess checks that under the other strategies the handler, or a later stage, decides about the
// ack.
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
		assert.NoError(t, assert.ErrOf(r.Process(ctx, msg)), "%s", name)
		settled := rig.Settled(msg)
		if c.in.Pending() != c.pending || settled != c.settled {
			t.Errorf("%s: %d entries pending, settled %t", name, c.in.Pending(), settled)
		}
		client.XAck(ctx, c.in.Stream, "g", rig.EntryOf(t, msg))
	}
}

func TestDuplicateWhoseHandlerFailsIsAcknowledged(t *testing.T) {
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
			rig.NoError(t, assert.ErrOf(r.Process(ctx, msg)))
			assert.NoError(t, msg.Err(), "nacked")
		}
		assert.Equal(t, in.Pending(), 0, "pending entries")
		other := in.Deliver("c", rig.Order("2"))
		if _, err := r.Process(ctx, other); err == nil || other.Err() == nil {
			t.Error("another message whose handler fails was acknowledged")
		}
	})
}

func TestGatheredMessagesCommitInTheOrderOfTheirEntriesAndShareOneLook(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]string{"no takeover": "cmdstat_exists:calls=1,", "after a takeover": "cmdstat_xpending:calls=1,"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Single(t, redistest.Own())
			client, ctx := server.Client(t), t.Context()
			tr := rig.NewTransactor(t, client)
			in := rig.NewInput(t, client, rig.Key(t, tr, "a", "in"))
			mw, err := stack.Scripted(tr, stack.Config{RelayElsewhere: true})
			redistest.Must(t, err)
			r := rig.NewRouter(t, message.PipeConfig{}, mw, func(ctx context.Context) ([]*message.Message, error) {
				return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, rig.Key(t, tr, "a", "n")))
			})
			entries := []string{"1-10", "2-1", "2-100", "10-0", "10-2"}
			for _, entry := range entries {
				client.XAdd(ctx, &redis.XAddArgs{Stream: in.Stream, ID: entry, Values: []any{"id", entry}})
			}
			client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{in.Stream, ">"}})
			if name == "after a takeover" {
				in.TakeOver("other", entries[0])
				in.TakeOver("c", entries[0])
			}
			redistest.Must(t, server.Admin(t).ConfigResetStat(ctx).Err())
			g := link.Of(tr).Gather(ctx, len(entries), 0, nil)
			var handlers sync.WaitGroup
			for _, entry := range entries {
				handlers.Go(func() {
					defer g.Leave()
					rig.NoError(t, assert.ErrOf(r.Process(g.Context(ctx), in.Message("c", entry, rig.Order(entry)))))
				})
			}
			handlers.Wait()
			stats := client.Info(ctx, "commandstats").Val()
			if !strings.Contains(stats, look) || name == "no takeover" && strings.Contains(stats, "xpending") {
				t.Errorf("the looks are not %s: %s", look, stats)
			}
			assert.Equal(t, in.Pending(), 0, "pending entries")
		})
	}
}

// TestMessageIsAppliedOncePerScope has a scope for each handler and one for each service.
func TestMessageIsAppliedOncePerScope(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx := redistest.Soon(t)
	n := redistest.Tag(t)
	apply := func(namespace, handler string) {
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.Namespace, c.Keyspace = namespace, luatx.OwnTags() })
		r := message.NewRouter(message.PipeConfig{})
		_ = r.Use(rig.Scripted(t, tr))
		_ = r.AddHandler(handler, nil, message.NewHandler(func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
			return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, "{a}:"+n))
		}))
		rig.NoError(t, assert.ErrOf(r.Process(ctx, rig.Delivered("1"))))
	}
	for i, c := range []struct {
		namespace, handler string
		total              string
	}{
		{"one", "bill", "1"}, {"one", "bill", "1"}, {"one", "ship", "2"}, {"two", "bill", "3"}, {"two", "bill", "3"},
	} {
		apply(c.namespace, c.handler)
		assert.Equal(t, client.Get(ctx, "{a}:"+n).Val(), c.total, "step %d (%s/%s): applied", i, c.namespace, c.handler)
	}
	// Ids whose parts differ only in their boundaries are different.
	tr := rig.NewTransactor(t, client)
	for _, id := range []luatx.MessageID{
		{Scope: "s", Source: "a", ID: "bc"}, {Scope: "s", Source: "ab", ID: "c"}, {Scope: "sa", Source: "b", ID: "c"},
	} {
		result, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error { return tx.Claim(id) })
		if err != nil || result.Outcome != luatx.Committed {
			t.Errorf("%v: %v, %v", id, result, err)
		}
	}
}

func TestOutputsDoNotCarryTheFinishedTransaction(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	first := rig.NewRouter(t, message.PipeConfig{AckStrategy: message.AckForward}, luatx.Middleware(tr), func(ctx context.Context) ([]*message.Message, error) {
		msg, _ := message.MessageFromContext(ctx)
		return []*message.Message{message.Copy(msg, any("copy")), message.New("new", rig.Order("2"), nil)}, nil
	})
	outputs, err := first.Process(ctx, rig.Delivered("1"))
	if err != nil || len(outputs) != 2 {
		t.Fatal(outputs, err)
	}
	for _, output := range outputs {
		if _, ok := luatx.TxFromContext(output.Context(ctx)); ok {
			t.Error("the transaction travels with the message")
		}
		second := rig.NewRouter(t, message.PipeConfig{}, luatx.Middleware(tr), func(ctx context.Context) ([]*message.Message, error) {
			return nil, luatx.CmdableFromContext(ctx, client).Set(ctx, rig.Key(t, tr, "a", "k"), 1, 0).Err()
		})
		assert.NoError(t, assert.ErrOf(second.Process(ctx, output)), "downstream")
	}
}

func TestOutputsOfACommitThatLostItsReplyArePassedOn(t *testing.T) {
	t.Parallel()
	proxy, through, past := rig.Proxied(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, through)
	n := rig.Key(t, tr, "a", "n")
	mw := message.Chain(luatx.Middleware(tr), inbox.Middleware(inbox.Config{}))
	r := rig.NewRouter(t, message.PipeConfig{}, mw, func(ctx context.Context) ([]*message.Message, error) {
		return []*message.Message{message.New("new", rig.Order("2"), nil)}, luatx.Queued(luatx.CmdableFromContext(ctx, through).Incr(ctx, n))
	})
	rig.Warm(t, tr)
	warm := proxy.Count("EVALSHA")
	proxy.DropReply(1, respproxy.Command("EVALSHA"))
	for delivery, want := range []int{1, 0} {
		outputs, err := r.Process(ctx, rig.Delivered("1"))
		if err != nil || len(outputs) != want {
			t.Errorf("delivery %d: %d outputs, want %d; %v", delivery, len(outputs), want, err)
		}
	}
	assert.Equal(t, past.Get(ctx, n).Val(), "1", "applied")
	assert.Equal(t, proxy.Count("EVALSHA")-warm, 3, "requests") // the first of them lost its reply
}

// TestStackInWrongOrderFailsBeforeTheHandler runs both in a router and in a chain made by hand.
func TestStackInWrongOrderFailsBeforeTheHandler(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	tx, multi := luatx.Middleware(tr), pipeline.Middleware(client)
	dedup, setnx := inbox.Middleware(inbox.Config{}), pipeline.SetNX(client, pipeline.SetNXConfig{})
	events, added := outbox.Middleware(outbox.Config{}), pipeline.Outbox(pipeline.OutboxConfig{Stream: "{a}:out"})
	for name, c := range map[string]struct {
		stack []message.Middleware
		says  string // empty if it works
	}{
		"scripted":                    {[]message.Middleware{tx, dedup, events}, ""},
		"pipelined":                   {[]message.Middleware{setnx, multi, added}, ""},
		"SetNX around scripted":       {[]message.Middleware{setnx, tx, events}, "replace it by inbox.Middleware"},
		"inbox outside":               {[]message.Middleware{dedup, tx, events}, "put luatx.Middleware before inbox.Middleware"},
		"outbox outside":              {[]message.Middleware{events, tx, dedup}, "put luatx.Middleware before outbox.Middleware"},
		"precheck outside":            {[]message.Middleware{inbox.Precheck(), tx}, "before inbox.Precheck"},
		"twice":                       {[]message.Middleware{tx, tx}, "leave one out"},
		"two inboxes":                 {[]message.Middleware{tx, dedup, dedup}, "one inbox.Middleware"},
		"pipeline inside scripted":    {[]message.Middleware{tx, multi}, "leave one out"},
		"scripted inside pipeline":    {[]message.Middleware{multi, tx}, "leave one out"},
		"SetNX inside pipeline":       {[]message.Middleware{multi, setnx}, "put pipeline.SetNX before pipeline.Middleware"},
		"pipeline outbox in scripted": {[]message.Middleware{tx, added}, "replace it by outbox.Middleware"},
		"pipeline outbox alone":       {[]message.Middleware{added}, "pipeline: no pipeline in context; put pipeline.Middleware before pipeline.Outbox"},
	} {
		ran := false
		handler := message.NewHandler(func(context.Context, *message.TypedMessage[any]) ([]*message.Message, error) {
			ran = true
			return nil, nil
		})
		r := message.NewRouter(message.PipeConfig{})
		redistest.Must(t, r.Use(c.stack...))
		_ = r.AddHandler("h", nil, handler)
		byHand := message.Chain(c.stack...).Wrap(handler.Handle)
		for way, process := range map[string]message.ProcessFunc{"router": r.Process, "by hand": byHand} {
			ran = false
			_, err := process(ctx, rig.Delivered(name+way))
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s, %s: error %v, want %q", name, way, err, c.says)
			}
			assert.Equal(t, ran, c.says == "", "%s, %s: the handler ran", name, way)
		}
	}
}

func TestSetNXAroundTheMiddlewareIsAnErrorAtStart(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	r := message.NewRouter(message.PipeConfig{})
	redistest.Must(t, r.Use(pipeline.SetNX(client, pipeline.SetNXConfig{}), luatx.Middleware(rig.NewTransactor(t, client))))
	assert.ErrorContains(t, r.Check(), "replace it by inbox.Middleware, inside luatx.Middleware", "the check")
}

func TestTransactionOfAHandlerClosesBeforeItsCommitAndWhenItFails(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	var kept *luatx.Tx
	var committing, fails error
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) {
		c.Observer.Committed = func(context.Context, luatx.Commit) { committing = rig.Emit(kept) }
	})
	r := rig.NewRouter(t, message.PipeConfig{}, luatx.Middleware(tr), func(ctx context.Context) ([]*message.Message, error) {
		kept, _ = luatx.TxFromContext(ctx)
		return nil, errors.Join(fails, rig.Incr(kept))
	})
	redistest.Must(t, assert.ErrOf(r.Process(redistest.Soon(t), rig.Delivered("1"))))
	assert.Is(t, committing, luatx.ErrTxClosed, "an event at the commit")
	fails = errors.New("no such customer")
	assert.Is(t, assert.ErrOf(r.Process(redistest.Soon(t), rig.Delivered("2"))), fails, "the handler")
	assert.Is(t, rig.Emit(kept), luatx.ErrTxClosed, "an event after the handler has failed")
}

func TestEntryThatTheCommitAcknowledgedIsNotAcknowledgedAgain(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client)
	r := rig.NewRouter(t, message.PipeConfig{}, rig.Scripted(t, tr), func(context.Context) ([]*message.Message, error) { return nil, nil })
	for aggregate, want := range map[string]int{"a": 0, "b": 1} { // the messages are of a
		in := rig.NewInput(t, client, rig.Key(t, tr, aggregate, "orders"))
		msg, acks := in.Deliver("c", rig.Order(aggregate)), 0
		source, _ := msg.InputSource()
		msg.SetAcking(message.NewAckingFrom(message.AckingConfig{Ack: func() { acks++ }, Source: source}))
		redistest.Must(t, assert.ErrOf(r.Process(redistest.Soon(t), msg)))
		if acks != want || in.Pending() != int64(want) || !rig.Settled(msg) {
			t.Errorf("from a stream of %s: %d acks besides the commit, want %d; %d pending", aggregate, acks, want, in.Pending())
		}
	}
}

func TestMessageWhoseOutputsWouldBeLostCommitsNothing(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client)
	n := rig.Key(t, tr, "a", "n")
	r := rig.NewRouter(t, message.PipeConfig{AckStrategy: message.AckForward}, luatx.Middleware(tr), func(ctx context.Context) ([]*message.Message, error) {
		tx, _ := luatx.TxFromContext(ctx)
		err := errors.Join(tx.Claim(luatx.MessageID{ID: "1"}), luatx.Queued(tx.Pipeline().Incr(ctx, n)))
		return []*message.Message{message.New("out", nil, nil)}, err
	})
	msg := rig.Delivered("1")
	assert.ErrorContains(t, assert.ErrOf(r.Process(redistest.Soon(t), msg)), "luatx: commit: ", "the message")
	if msg.Err() == nil || client.Exists(t.Context(), n).Val() != 0 {
		t.Errorf("nacked with %v, %d effects", msg.Err(), client.Exists(t.Context(), n).Val())
	}
}

func TestGatheredCommitsWaitForALongHandlerNoLongerThanTheyLinger(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Shared(t).Client(t), redistest.Soon(t)
	tr := rig.NewTransactor(t, client)
	mw, err := stack.Scripted(tr, stack.Config{RelayElsewhere: true})
	redistest.Must(t, err)
	committed := make(chan struct{})
	r := rig.NewRouter(t, message.PipeConfig{}, mw, func(ctx context.Context) ([]*message.Message, error) {
		return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, rig.Key(t, tr, "a", "n")))
	})
	g := link.Of(tr).Gather(ctx, 2, time.Millisecond, nil)
	var handlers sync.WaitGroup
	handlers.Go(func() {
		defer g.Leave()
		defer close(committed)
		rig.NoError(t, assert.ErrOf(r.Process(g.Context(ctx), message.New(nil, rig.Order("1"), nil))))
	})
	handlers.Go(func() {
		defer g.Leave()
		select {
		case <-committed:
		case <-ctx.Done():
			t.Error("the other commit waits for this handler, which does not end")
		}
	})
	handlers.Wait()
}
