package stack_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/pipeline"
	"github.com/luatx/luatx/stack"
	"github.com/luatx/luatx/stream"
)

func TestEngineRejectsOutboxSubscriberUnderAckOnSuccessBeforeItReads(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		sub, key := outboxOfOne(t, client)
		engine, _ := forwarder(t, message.AckOnSuccess)
		must(t, engine.AddSubscriber("outbox", nil, sub))
		err := engine.Run(redistest.Soon(t))
		wantUnsafe(t, err, "AckForward")
		if _, ok := errors.AsType[*message.WiringError](err); !ok {
			t.Errorf("%T is no *message.WiringError", err)
		}
		if groups := client.XInfoGroups(t.Context(), key).Val(); len(groups) != 0 {
			t.Errorf("it subscribed: %v", groups)
		}
	})
}

func TestAckForwardPublishesRejectedOutboxEventAgain(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		sub, key := outboxOfOne(t, client)
		ctx, cancel := context.WithCancel(redistest.Soon(t))
		defer cancel()
		engine, out := forwarder(t, message.AckForward)
		must(t, engine.AddSubscriber("outbox", nil, sub))
		done := make(chan error, 1)
		go func() { done <- engine.Run(ctx) }()
		(<-out).Nack(message.RetryAfter(errors.New("the destination rejects it"), 0))
		again := <-out
		if again.ID() != "1" {
			t.Errorf("event %q, want 1", again.ID())
		}
		again.Ack()
		redistest.Eventually(t, "the event to be acked", func() bool {
			return client.XPending(ctx, key, stream.OutboxGroup).Val().Count == 0
		})
		cancel()
		must(t, <-done)
	})
}

// TestHiddenInboxRollsBackUnderAckForward hides the traits of the middlewares from the Router, so that the danger shows only
// in the outputs of a message.
func TestHiddenInboxRollsBackUnderAckForward(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, err := luatx.New(client, luatx.Config{Namespace: redistest.Namespace(t)})
		must(t, err)
		prefix := redistest.Tag(t)
		marks := pipeline.SetNXConfig{MarkKey: func(id message.Identity) string { return prefix + id.ID }}
		for name, mw := range map[string]message.Middleware{
			"scripted":  message.Chain(luatx.Middleware(tr), inbox.Middleware(inbox.Config{})),
			"pipelined": message.Chain(pipeline.SetNX(client, marks), pipeline.Middleware(client)),
		} {
			effect := "{" + redistest.Tag(t) + "}"
			if name == "scripted" {
				effect = tr.Keyspace().TagKey("a", "effect")
			}
			router := message.NewRouter(message.PipeConfig{AckStrategy: message.AckForward})
			must(t, router.Use(message.NewMiddleware(mw.Wrap)))
			must(t, router.AddHandler(name, nil, message.NewHandler(func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
				return []*message.Message{message.New(nil, nil, nil)}, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, effect))
			})))
			_, err := router.Process(redistest.Soon(t), message.New(nil, message.Attributes{"id": "1", "source": "/s", "subject": "a"}, nil))
			wantUnsafe(t, err, "add an outbox")
			if n := client.Exists(t.Context(), effect).Val(); n != 0 {
				t.Errorf("%s: the effect was committed", name)
			}
		}
	})
}

func TestStackIsAcceptedUnderEveryAckStrategy(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	for _, m := range modes {
		s := newService(t, client, m)
		mw, err := m.wire(s)
		must(t, err)
		for _, strategy := range []message.AckStrategy{message.AckOnSuccess, message.AckManual, message.AckForward} {
			router := message.NewRouter(message.PipeConfig{AckStrategy: strategy})
			must(t, router.Use(mw))
			if err := router.Check(); err != nil {
				t.Errorf("%s, %v: %v", m.name, strategy, err)
			}
		}
	}
}

func TestRouterRejectsSetNXAroundScriptedStack(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: redistest.Namespace(t)})
	must(t, err)
	scripted, err := stack.Scripted(tr, stack.Config{})
	must(t, err)
	router := message.NewRouter(message.PipeConfig{})
	must(t, router.Use(message.Chain(pipeline.SetNX(client, pipeline.SetNXConfig{}), scripted)))
	wantUnsafe(t, router.Check(), "replace it by inbox.Middleware")
}

func TestConsumeAcceptsEngineAndRouter(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, err := luatx.New(client, luatx.Config{Namespace: redistest.Namespace(t), Aggregate: func(*message.Message) (string, error) { return "a", nil }})
		must(t, err)
		engine, router := message.NewEngine(message.EngineConfig{}), message.NewRouter(message.PipeConfig{})
		for name, to := range map[string]struct {
			stream.Processor
			router *message.Router
		}{"engine": {engine, engine.Router()}, "router": {router, router}} {
			key, effect := redistest.Tag(t), tr.Keyspace().TagKey("a", name)
			must(t, errors.Join(to.router.Use(luatx.Middleware(tr), inbox.Middleware(inbox.Config{})),
				to.router.AddHandler("h", nil, message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[struct{ N int64 }]) ([]*message.Message, error) {
					if msg.Data.N == 0 {
						return []*message.Message{message.New(nil, message.Attributes{"type": "out"}, nil)}, nil
					}
					return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).IncrBy(ctx, effect, msg.Data.N))
				}, message.Named("")))))
			publisher, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: key})
			must(t, err)
			for id, data := range map[string]string{"1": `{"N":7}`, "2": `{"N":0}`} {
				must(t, errors.Join(publisher.Send(t.Context(), message.NewRaw([]byte(data), message.Attributes{"id": name + id, "source": "/s", "type": "add"}, nil))...))
			}
			sub, err := stream.NewSubscriber(client, stream.SubscriberConfig{Stream: key, Group: "g"})
			must(t, err)
			ctx, cancel := context.WithCancel(redistest.Soon(t))
			done := make(chan error, 1)
			go func() { done <- sub.Consume(ctx, tr, to) }()
			redistest.Eventually(t, "the effect, and the ack of the message without outputs", func() bool {
				return client.Get(t.Context(), effect).Val() == "7" && sub.Stats().Delivered >= 2 && client.XPending(t.Context(), key, "g").Val().Count == 1
			})
			cancel()
			must(t, <-done)
		}
	})
}

func TestConsumeRejectsUnsafeRouterBeforeItReads(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: redistest.Namespace(t)})
	must(t, err)
	sub, err := stream.NewSubscriber(client, stream.SubscriberConfig{Stream: "in", Group: "g"})
	must(t, err)
	router := message.NewRouter(message.PipeConfig{AckStrategy: message.AckForward})
	must(t, router.Use(luatx.Middleware(tr), inbox.Middleware(inbox.Config{})))
	wantUnsafe(t, sub.Consume(t.Context(), tr, router), "add an outbox")
}
