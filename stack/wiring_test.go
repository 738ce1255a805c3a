package stack_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/pipeline"
	"github.com/luatx/luatx/stack"
	"github.com/luatx/luatx/stream"
)

// wantUnsafe checks that an error states what would be lost and how to avoid it.
func wantUnsafe(t *testing.T, err error, remedy string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "unsafe wiring") || !strings.Contains(err.Error(), remedy) {
		t.Errorf("got error %v, want unsafe wiring and %q", err, remedy)
	}
}

// outboxOfOne returns a subscriber of an outbox stream that holds one event, and the stream's key.
func outboxOfOne(t *testing.T, client redis.UniversalClient) (*stream.Subscriber, string) {
	t.Helper()
	key := redistest.Tag(t)
	values, err := outbox.JSON(message.New([]byte(`{}`), message.Attributes{"id": "1", "type": "order.placed", "source": "/orders"}, nil))
	redistest.Must(t, err)
	redistest.Must(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: values}).Err())
	sub, err := stream.NewOutboxSubscriber(client, stream.SubscriberConfig{Stream: key, BlockTimeout: 20 * time.Millisecond})
	redistest.Must(t, err)
	return sub, key
}

// forwarder returns an Engine whose handler passes events on.
func forwarder(t *testing.T, strategy message.AckStrategy) (*message.Engine, <-chan *message.RawMessage) {
	t.Helper()
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{
		AckStrategy: strategy, ErrorHandler: func(context.Context, *message.Message, error) {},
	}})
	redistest.Must(t, engine.AddHandler("forward", nil, message.NewHandler(func(_ context.Context, msg *message.TypedMessage[any]) ([]*message.Message, error) {
		return []*message.Message{message.New(msg.Data, maps.Clone(msg.Attributes), nil)}, nil
	})))
	out, err := engine.AddRawOutput("destination", nil)
	redistest.Must(t, err)
	return engine, out
}

func TestEngineDoesNotAckOutboxEventThatDestinationRejects(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		sub, key := outboxOfOne(t, client)
		ctx, cancel := context.WithCancel(redistest.Soon(t))
		defer cancel()
		events, err := sub.Subscribe(ctx)
		redistest.Must(t, err)
		engine, out := forwarder(t, message.AckOnSuccess)
		redistest.Must(t, engine.AddRawInput("outbox", nil, events))
		done := make(chan error, 1)
		go func() { done <- engine.Run(ctx) }()
		go func() {
			for event := range out {
				event.Nack(errors.New("the destination rejects it"))
			}
		}()
		redistest.Eventually(t, "the event to be lost, or the Engine to stop", func() bool {
			delivered := sub.Stats().Delivered > 0 // read before XPENDING, because a delivered event is pending until it is acked
			pending, err := client.XPending(ctx, key, stream.OutboxGroup).Result()
			redistest.Must(t, err)
			if delivered && pending.Count == 0 {
				t.Fatal("the event was acked, and nobody has published it")
			}
			select {
			case err := <-done:
				wantUnsafe(t, err, "AckForward")
				return true
			default:
				return false
			}
		})
		if pending := client.XPending(ctx, key, stream.OutboxGroup).Val(); pending.Count != 1 {
			t.Errorf("%d events pending, want 1", pending.Count)
		}
		cancel()
		for range events { // until the subscription has ended
		}
	})
}

func TestUnsafeStackIsRejectedBeforeAMessageIsRead(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client)
		scripted, err := stack.Scripted(tr, stack.Config{})
		redistest.Must(t, err)
		marks := pipeline.SetNX(client, pipeline.SetNXConfig{})
		for name, c := range map[string]struct {
			strategy message.AckStrategy
			mw       []message.Middleware
			remedy   string
		}{
			"inbox and no outbox":           {message.AckForward, []message.Middleware{luatx.Middleware(tr), inbox.Middleware(inbox.Config{})}, "add an outbox"},
			"SetNX and no outbox":           {message.AckForward, []message.Middleware{marks, pipeline.Middleware(client)}, "add an outbox"},
			"SetNX around a transaction":    {message.AckOnSuccess, []message.Middleware{marks, luatx.Middleware(tr)}, "replace it by inbox.Middleware"},
			"SetNX around the scripted one": {message.AckOnSuccess, []message.Middleware{message.Chain(marks, scripted)}, "replace it by inbox.Middleware"},
		} {
			router := rig.NewRouter(t, message.PipeConfig{AckStrategy: c.strategy}, message.Chain(c.mw...), func(context.Context) ([]*message.Message, error) {
				t.Errorf("%s: the handler ran", name)
				return nil, nil
			})
			wantUnsafe(t, router.Check(), c.remedy)
			_, err := router.Process(redistest.Soon(t), message.New(nil, message.Attributes{"id": name, "source": "/s", "subject": "a", "type": "in"}, nil))
			wantUnsafe(t, err, c.remedy)
			_, err = router.Pipe(t.Context(), make(chan *message.Message))
			wantUnsafe(t, err, c.remedy)
			sub, err := stream.NewSubscriber(client, stream.SubscriberConfig{Stream: redistest.Tag(t), Group: "g"})
			redistest.Must(t, err)
			wantUnsafe(t, sub.Consume(t.Context(), tr, router), c.remedy)
		}
	})
}

func TestEngineRejectsOutboxSubscriberUnderAckOnSuccessBeforeItReads(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		sub, key := outboxOfOne(t, client)
		engine, _ := forwarder(t, message.AckOnSuccess)
		redistest.Must(t, engine.AddSubscriber("outbox", nil, sub))
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
		redistest.Must(t, engine.AddSubscriber("outbox", nil, sub))
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
		redistest.Must(t, <-done)
	})
}

// TestHiddenInboxRollsBackUnderAckForward hides the traits of the middlewares from the Router, so that the problem appears only
// with the outputs of a message.
func TestHiddenInboxRollsBackUnderAckForward(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client)
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
			hidden := message.NewMiddleware(mw.Wrap)
			router := rig.NewRouter(t, message.PipeConfig{AckStrategy: message.AckForward}, hidden, func(ctx context.Context) ([]*message.Message, error) {
				return []*message.Message{message.New(nil, nil, nil)}, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, effect))
			})
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
		redistest.Must(t, err)
		for _, strategy := range []message.AckStrategy{message.AckOnSuccess, message.AckManual, message.AckForward} {
			router := message.NewRouter(message.PipeConfig{AckStrategy: strategy})
			redistest.Must(t, router.Use(mw))
			if err := router.Check(); err != nil {
				t.Errorf("%s, %v: %v", m.name, strategy, err)
			}
		}
	}
}

func TestConsumeAcceptsEngineAndRouter(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.Aggregate = func(*message.Message) (string, error) { return "a", nil } })
		engine, router := message.NewEngine(message.EngineConfig{}), message.NewRouter(message.PipeConfig{})
		for name, to := range map[string]struct {
			stream.Processor
			router *message.Router
		}{"engine": {engine, engine.Router()}, "router": {router, router}} {
			key, effect := redistest.Tag(t), tr.Keyspace().TagKey("a", name)
			redistest.Must(t, errors.Join(to.router.Use(luatx.Middleware(tr), inbox.Middleware(inbox.Config{})),
				to.router.AddHandler("h", nil, message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[struct{ N int64 }]) ([]*message.Message, error) {
					if msg.Data.N == 0 {
						return []*message.Message{message.New(nil, message.Attributes{"type": "out"}, nil)}, nil
					}
					return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).IncrBy(ctx, effect, msg.Data.N))
				}, message.Named("")))))
			publisher, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: key})
			redistest.Must(t, err)
			for id, data := range map[string]string{"1": `{"N":7}`, "2": `{"N":0}`} {
				redistest.Must(t, errors.Join(publisher.Send(t.Context(), message.NewRaw([]byte(data), message.Attributes{"id": name + id, "source": "/s", "type": "add"}, nil))...))
			}
			sub, err := stream.NewSubscriber(client, stream.SubscriberConfig{Stream: key, Group: "g"})
			redistest.Must(t, err)
			ctx, cancel := context.WithCancel(redistest.Soon(t))
			done := make(chan error, 1)
			go func() { done <- sub.Consume(ctx, tr, to) }()
			redistest.Eventually(t, "the effect, and the ack of the message without outputs", func() bool {
				return client.Get(t.Context(), effect).Val() == "7" && sub.Stats().Delivered >= 2 && client.XPending(t.Context(), key, "g").Val().Count == 1
			})
			cancel()
			redistest.Must(t, <-done)
		}
	})
}
