package faults_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// consumer reads a stream one message at a time, like a service. Its handler reports its start, and waits.
type consumer struct {
	t      testing.TB
	begun  chan struct{}
	gate   chan struct{}
	judged chan verdict
}

// verdict is the result of one run.
type verdict struct {
	msg *message.Message
	err error
}

// consume subscribes a consumer until the test ends. It claims messages that have been idle for the given time.
func consume(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor, mw message.Middleware, name string, idle time.Duration) *consumer {
	t.Helper()
	c := &consumer{t: t, begun: make(chan struct{}, 9), gate: make(chan struct{}, 9), judged: make(chan verdict, 9)}
	n := rig.Key(t, tr, "a", "n")
	r := rig.NewRouter(t, message.PipeConfig{Logger: slog.New(slog.DiscardHandler)}, mw, func(ctx context.Context) ([]*message.Message, error) {
		c.begun <- struct{}{}
		<-c.gate
		return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, n))
	})
	sub, err := stream.NewSubscriber(client, stream.SubscriberConfig{
		Stream: rig.Key(t, tr, "a", "orders"), Group: "g", Consumer: name, BatchSize: 1,
		BlockTimeout: 20 * time.Millisecond, MaxIdleTime: idle, ClaimInterval: 10 * time.Millisecond,
		NackBackoff: message.Backoff{Base: time.Millisecond, Max: time.Millisecond},
		Logger:      slog.New(slog.DiscardHandler),
	})
	redistest.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ch, err := sub.Subscribe(ctx)
	redistest.Must(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for raw := range ch {
			msg := message.Copy(raw, any(raw.Data))
			_, err := r.Process(ctx, msg)
			c.judged <- verdict{msg, err}
		}
	})
	t.Cleanup(func() {
		cancel()
		close(c.gate)
		running.Wait()
	})
	return c
}

// begins waits until the handler has begun.
func (c *consumer) begins() {
	c.t.Helper()
	redistest.Eventually(c.t, "the handler to begin", func() bool { return len(c.begun) > 0 })
	<-c.begun
}

// wakes lets the handler return, and waits for the result.
func (c *consumer) wakes() verdict {
	c.t.Helper()
	c.gate <- struct{}{}
	redistest.Eventually(c.t, "the commit to be answered", func() bool { return len(c.judged) > 0 })
	return <-c.judged
}

func (c *consumer) commits() {
	c.t.Helper()
	if v := c.wakes(); v.err != nil {
		c.t.Errorf("the consumer that owns the message: %v", v.err)
	}
}

func TestOfTwoConsumersOfOneMessageOneCommits(t *testing.T) {
	t.Parallel()
	const never, soon = time.Hour, 30 * time.Millisecond
	withoutGroup := func(ctx context.Context, f fighters) func() {
		f.client.XGroupDestroy(ctx, f.stream, "g")
		return func() { f.first.begins(); f.first.commits() } // its subscription creates the group again
	}
	withoutConsumer := func(ctx context.Context, f fighters) func() {
		f.client.XGroupDelConsumer(ctx, f.stream, "g", "first") // with its pending entries
		return nil
	}
	bare := func(_ testing.TB, tr *luatx.Transactor) message.Middleware { return luatx.Middleware(tr) }
	for name, c := range map[string]struct {
		stack func(testing.TB, *luatx.Transactor) message.Middleware
		// lose takes the message away from the first consumer. The returned function runs after the first handler has returned.
		lose    func(ctx context.Context, f fighters) (after func())
		want    error // of the first consumer; nil if the message counts as applied
		effects int
	}{
		"claimed and at work": {rig.Scripted, func(_ context.Context, f fighters) func() {
			second := f.join("second", soon)
			second.begins()
			return second.commits
		}, luatx.ErrFenced, 1},
		"claimed and committed": {bare, func(_ context.Context, f fighters) func() {
			second := f.join("second", soon)
			second.begins()
			second.commits()
			return nil
		}, luatx.ErrFenced, 1},
		"claimed and committed, as its inbox knows": {rig.Scripted, func(_ context.Context, f fighters) func() {
			second := f.join("second", soon)
			second.begins()
			second.commits()
			return nil
		}, nil, 1},
		"the group is gone":                         {bare, withoutGroup, luatx.ErrFenced, 1},
		"the group is gone, and it has an inbox":    {rig.Scripted, withoutGroup, nil, 1},
		"the consumer is gone":                      {bare, withoutConsumer, luatx.ErrFenced, 0},
		"the consumer is gone, and it has an inbox": {rig.Scripted, withoutConsumer, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			direct, proxy := server.Client(t), redistest.Proxy(t, server.Addr())
			ctx, tr := redistest.Soon(t), rig.NewTransactor(t, direct)
			f := fighters{client: direct, stream: rig.Key(t, tr, "a", "orders")}
			f.join = func(name string, idle time.Duration) *consumer {
				return consume(t, direct, tr, c.stack(t, tr), name, idle)
			}
			rig.Publish(t, direct, f.stream, rig.Order("1"))
			f.first = consume(t, redistest.Client(t, proxy.Addr()), tr, c.stack(t, tr), "first", never)
			f.first.begins()
			after := c.lose(ctx, f)
			v := f.first.wakes()
			if !errors.Is(v.err, c.want) || v.msg.Err() != nil {
				t.Errorf("the first returned %v and was nacked with %v, want %v", v.err, v.msg.Err(), c.want)
			}
			if !rig.Settled(v.msg) {
				t.Error("the first holds on to its message")
			}
			if after != nil {
				after()
			}
			if acks := proxy.Count("XACK"); acks != 0 && !strings.HasPrefix(name, "the group is gone") {
				t.Errorf("the first acked %d times: %v", acks, proxy.Commands(respproxy.Command("XACK")))
			}
			if n, _ := direct.Get(ctx, rig.Key(t, tr, "a", "n")).Int(); n != c.effects {
				t.Errorf("applied %d times, want %d", n, c.effects)
			}
			assert.Equal(t, rig.Pending(t, direct, f.stream), 0, "pending entries")
		})
	}
}

// fighters are two consumers of one stream.
type fighters struct {
	client redis.UniversalClient
	stream string
	first  *consumer
	join   func(name string, idle time.Duration) *consumer
}

func TestOneOfTwoCopiesHandledAtOnceIsAppliedAndBothAreAcked(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		in := rig.NewInput(t, client, rig.Key(t, tr, "a", "orders"))
		effects := rig.Key(t, tr, "a", "effects")
		mw := message.Chain(luatx.Middleware(tr), inbox.Middleware(inbox.Config{}))
		r := rig.NewRouter(t, message.PipeConfig{}, mw, func(ctx context.Context) ([]*message.Message, error) {
			msg, _ := message.MessageFromContext(ctx)
			err := luatx.Queued(luatx.CmdableFromContext(ctx, client).HIncrBy(ctx, effects, msg.ID(), 1))
			return []*message.Message{message.New(nil, nil, nil)}, err
		})
		const rounds = 200
		for round := range rounds {
			id := fmt.Sprint(round)
			var outputs [2][]*message.Message
			var running sync.WaitGroup
			for i, name := range []string{"one", "two"} {
				msg := in.Deliver(name, rig.Order(id))
				running.Go(func() {
					var err error
					if outputs[i], err = r.Process(ctx, msg); err != nil || msg.Err() != nil {
						t.Errorf("round %d, copy %d: %v, nacked with %v", round, i, err, msg.Err())
					}
				})
			}
			running.Wait()
			assert.Equal(t, len(outputs[0])+len(outputs[1]), 1, "round %d: outputs", round)
		}
		applied := client.HGetAll(ctx, effects).Val()
		for id, times := range applied {
			assert.Equal(t, times, "1", "%s: applied", id)
		}
		if len(applied) != rounds || in.Pending() != 0 {
			t.Errorf("%d of %d are applied, %d entries pending", len(applied), rounds, in.Pending())
		}
	})
}
