package stack_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
	"github.com/luatx/luatx/stream"
)

// batcher consumes a stream of one aggregate in batches, and counts how often each message was applied.
type batcher struct {
	t      *testing.T
	client redis.UniversalClient // connected without the proxy
	tr     *luatx.Transactor
	stream string
	ids    string // a hash: how often each message was applied
}

func newBatcher(t *testing.T, through, past redis.UniversalClient) *batcher {
	t.Helper()
	tr, err := luatx.New(through, luatx.Config{Namespace: redistest.Namespace(t), Logger: slog.New(slog.DiscardHandler)})
	redistest.Must(t, err)
	tag := redistest.Tag(t)
	in, err := tr.Keyspace().Key(tag, "in")
	redistest.Must(t, err)
	ids, err := tr.Keyspace().Key(tag, "ids")
	redistest.Must(t, err)
	return &batcher{t: t, client: past, tr: tr, stream: in, ids: ids}
}

func (b *batcher) feed(from, to int) {
	b.t.Helper()
	pipe := b.client.Pipeline()
	for i := from; i < to; i++ {
		pipe.XAdd(b.t.Context(), &redis.XAddArgs{Stream: b.stream, Values: []any{
			"ce_specversion", "1.0", "ce_id", strconv.Itoa(i), "ce_source", "/test", "ce_type", "counted", "data", strconv.Itoa(i),
		}})
	}
	_, err := pipe.Exec(b.t.Context())
	redistest.Must(b.t, err)
}

// consume runs until the test ends. The handler gets the message's number.
func (b *batcher) consume(through redis.UniversalClient, handle func(ctx context.Context, id string) error) {
	b.t.Helper()
	mw, err := stack.Scripted(b.tr, stack.Config{})
	redistest.Must(b.t, err)
	engine := message.NewEngine(message.EngineConfig{})
	redistest.Must(b.t, engine.Router().Use(mw))
	redistest.Must(b.t, engine.AddHandler("count", nil, message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[any]) ([]*message.Message, error) {
		if err := handle(ctx, msg.ID()); err != nil {
			return nil, err
		}
		return nil, luatx.Queued(luatx.CmdableFromContext(ctx, through).HIncrBy(ctx, b.ids, msg.ID(), 1))
	})))
	sub, err := stream.NewSubscriber(through, stream.SubscriberConfig{
		Stream: b.stream, Group: "g", BatchSize: 32, BlockTimeout: 50 * time.Millisecond, ClaimInterval: 50 * time.Millisecond,
		NackBackoff: message.Backoff{Base: time.Millisecond, Max: 20 * time.Millisecond}, Logger: slog.New(slog.DiscardHandler),
	})
	redistest.Must(b.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		err := sub.Consume(ctx, b.tr, engine)
		if err != nil {
			b.t.Error(err)
		}
	})
	b.t.Cleanup(func() { cancel(); running.Wait() })
}

// wantOnce waits until n messages are applied and acknowledged, and fails if one is applied twice.
func (b *batcher) wantOnce(n int) {
	b.t.Helper()
	redistest.Eventually(b.t, fmt.Sprintf("%d messages to be applied and acknowledged", n), func() bool {
		pending, err := b.client.XPending(b.t.Context(), b.stream, "g").Result()
		return err == nil && pending.Count == 0 && b.client.HLen(b.t.Context(), b.ids).Val() == int64(n)
	})
	for id, times := range b.client.HGetAll(b.t.Context(), b.ids).Val() {
		if times != "1" {
			b.t.Errorf("message %s was applied %s times", id, times)
		}
	}
}

func none(context.Context, string) error { return nil }

func TestConsumeAppliesEachMessageOnce(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		b := newBatcher(t, client, client)
		b.feed(0, 300)
		b.consume(client, none)
		b.wantOnce(300)
		b.feed(290, 350) // includes some messages again
		b.wantOnce(350)
	})
}

// TestConsumeSendsTheCommitsOfABatchAndTheNextReadTogether tries several times, because on a busy machine handlers take longer
// than a batch waits for them.
func TestConsumeSendsTheCommitsOfABatchAndTheNextReadTogether(t *testing.T) {
	t.Parallel()
	said := ""
	for range 10 {
		commits, reads, acks := roundTrips(t)
		if commits <= 20 && reads <= 40 && acks == 0 {
			return
		}
		said = fmt.Sprintf("320 messages in batches of 32 took %d commits, %d reads and %d acks", commits, reads, acks)
	}
	t.Error(said)
}

func roundTrips(t *testing.T) (commits, reads, acks int) {
	t.Helper()
	server := redistest.Shared(t)
	proxy := redistest.Proxy(t, server.Addr())
	client := redistest.Client(t, proxy.Addr())
	b := newBatcher(t, client, server.Client(t))
	b.feed(0, 320)
	b.consume(client, none)
	b.wantOnce(320)
	commits = len(proxy.Commands(respproxy.Command("EVALSHA"), respproxy.Containing(rig.ScriptSHA(t, b.tr, "commit"))))
	return commits, proxy.Count("XREADGROUP"), proxy.Count("XACK")
}

func TestConsumeHandlesNextBatchWhileHandlersOfOneTakeLong(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	b := newBatcher(t, client, client)
	b.feed(0, 200) // more than one batch and the entries read ahead
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	b.consume(client, func(ctx context.Context, id string) error {
		if n, _ := strconv.Atoi(id); n < 32 { // the first batch
			select {
			case <-released:
			case <-ctx.Done():
			}
		}
		return nil
	})
	redistest.Eventually(t, "the others to be committed", func() bool { return client.HLen(t.Context(), b.ids).Val() == 168 })
	release()
	b.wantOnce(200)
}

func TestConsumeReadsThePendingListOncePerBatch(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t, redistest.Own()).Client(t)
	b := newBatcher(t, client, client)
	b.feed(0, 640)
	b.consume(client, none)
	b.wantOnce(640)
	looks := 0
	for line := range strings.Lines(client.Info(t.Context(), "commandstats").Val()) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_xpending:calls="); ok {
			calls, _, _ := strings.Cut(rest, ",")
			looks, _ = strconv.Atoi(calls)
		}
	}
	if looks == 0 || looks > 320 {
		t.Errorf("%d looks at the pending list for 640 messages in batches of 32", looks)
	}
}

func TestConsumeKeepsFailurePanicAndDelayOfAHandlerFromOtherMessages(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		b := newBatcher(t, client, client)
		b.feed(0, 64)
		var tries sync.Map
		released := make(chan struct{})
		release := sync.OnceFunc(func() { close(released) })
		t.Cleanup(release)
		b.consume(client, func(_ context.Context, id string) error {
			n, _ := tries.LoadOrStore(id, new(atomic.Int64))
			first := n.(*atomic.Int64).Add(1) == 1
			switch {
			case id == "3" && first:
				return errors.New("fails once")
			case id == "4" && first:
				panic("panics once")
			case id == "5" && first:
				<-released
			}
			return nil
		})
		redistest.Eventually(t, "the rest of the batch to be committed while one handler stands still", func() bool {
			return client.HLen(t.Context(), b.ids).Val() >= 29
		})
		release()
		b.wantOnce(64)
	})
}

func TestConsumeNeitherLosesNorRepeatsAnEffectIfRequestsAndRepliesAreLost(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	proxy := redistest.Proxy(t, server.Addr())
	client := redistest.Client(t, proxy.Addr(), func(o *redis.Options) { o.ReadTimeout = 200 * time.Millisecond })
	b := newBatcher(t, client, server.Client(t))
	b.feed(0, 600)
	for _, match := range []respproxy.Matcher{respproxy.Command("EVALSHA"), respproxy.Command("XREADGROUP")} {
		var n atomic.Int64
		proxy.On(func(cmd []string) respproxy.Action {
			if match(cmd) && n.Add(1)%5 == 0 && n.Load() < 60 {
				return respproxy.CutReply()
			}
			return respproxy.Pass()
		})
	}
	b.consume(client, none)
	b.wantOnce(600)
}

func TestConsumeCountsMessagesOfABatchThatReadWhatOthersWrite(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		b := newBatcher(t, client, client)
		total := b.ids + ":total"
		b.feed(0, 12)
		b.consume(client, func(ctx context.Context, _ string) error {
			sum, err := luatx.ReaderFromContext(ctx, client).Get(ctx, total).Int()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			return luatx.CmdableFromContext(ctx, client).Set(ctx, total, sum+1, 0).Err()
		})
		b.wantOnce(12)
		if got := client.Get(t.Context(), total).Val(); got != "12" {
			t.Errorf("the sum is %s", got)
		}
	})
}
