package stack_test

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
	"github.com/luatx/luatx/stream"
)

// BenchmarkStream takes messages from a stream to the end: three fields, a counter, one event of 300 bytes, the
// acknowledgement; by 64 workers in either mode, and in batches of 64. Compare within one run.
func BenchmarkStream(b *testing.B) {
	for _, way := range []string{"pipelined", "scripted", "batches"} {
		b.Run(way, func(b *testing.B) { benchStream(b, way) })
	}
}

func benchStream(b *testing.B, way string) {
	b.Helper()
	client := redistest.Shared(b).Client(b, func(o *redis.Options) { o.PoolSize = 70 })
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	quiet := slog.New(slog.DiscardHandler)
	tr, err := luatx.New(client, luatx.Config{Namespace: redistest.Namespace(b), OutboxCapacity: 1 << 30, OutboxBytes: 1 << 40, Logger: quiet})
	must(b, err)
	tag := redistest.Tag(b)
	name := func(part string) string { return "{" + tag + "}:" + part }
	mw, err := stack.Scripted(tr, stack.Config{})
	if way == "pipelined" {
		mw, err = stack.Pipelined(client, stack.Config{OutboxStream: name("out"), MarkKey: func(id message.Identity) string { return name(id.Source + ":" + id.ID) }})
	}
	must(b, err)

	var handled atomic.Int64
	body := make([]byte, 300)
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{Concurrency: 64, Logger: quiet}})
	must(b, engine.Router().Use(message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			outputs, err := next(ctx, msg)
			if err == nil && handled.Add(1) == int64(b.N) {
				stop()
			}
			return outputs, err
		}
	}), mw))
	must(b, engine.AddHandler("h", nil, message.NewHandler(func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
		c := luatx.CmdableFromContext(ctx, client)
		c.HSet(ctx, name("hash"), "a", 1, "b", 2, "c", 3)
		return []*message.Message{message.New(body, message.Attributes{"type": "t", "source": "/s", "datacontenttype": "application/octet-stream"}, nil)},
			luatx.Queued(c.Incr(ctx, name("counter")))
	})))
	for i := 0; i < b.N; i += 1000 {
		pipe := client.Pipeline()
		for j := i; j < min(i+1000, b.N); j++ {
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: name("in"), Values: []any{"ce_specversion", "1.0", "ce_id", strconv.Itoa(j), "ce_source", "/s", "ce_type", "t", "ce_subject", tag, "data", ""}})
		}
		_, err := pipe.Exec(ctx)
		must(b, err)
	}
	sub, err := stream.NewSubscriber(client, stream.SubscriberConfig{Stream: name("in"), Group: "g", BatchSize: 64, Logger: quiet})
	must(b, err)

	b.ReportAllocs()
	b.ResetTimer()
	if way == "batches" {
		must(b, sub.Consume(ctx, tr, engine))
		return
	}
	var running sync.WaitGroup
	in, err := sub.Subscribe(ctx)
	must(b, err)
	must(b, engine.AddRawInput("in", nil, in))
	running.Go(func() { must(b, engine.Run(ctx)) })
	running.Wait()
}
