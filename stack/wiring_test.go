package stack_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/pipeline"
	"github.com/luatx/luatx/stream"
)

// wantUnsafe checks that an error says what would be lost and how to avoid it.
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
	must(t, err)
	must(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: values}).Err())
	sub, err := stream.NewOutboxSubscriber(client, stream.SubscriberConfig{Stream: key, BlockTimeout: 20 * time.Millisecond})
	must(t, err)
	return sub, key
}

// forwarder is an Engine whose handler passes events on.
func forwarder(t *testing.T, strategy message.AckStrategy) (*message.Engine, <-chan *message.RawMessage) {
	t.Helper()
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{
		AckStrategy: strategy, ErrorHandler: func(context.Context, *message.Message, error) {},
	}})
	must(t, engine.AddHandler("forward", nil, message.NewHandler(func(_ context.Context, msg *message.TypedMessage[any]) ([]*message.Message, error) {
		return []*message.Message{message.New(msg.Data, msg.Attributes.Clone(), nil)}, nil
	})))
	out, err := engine.AddRawOutput("destination", nil)
	must(t, err)
	return engine, out
}

func TestEngineDoesNotAckOutboxEventThatDestinationRejects(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		sub, key := outboxOfOne(t, client)
		ctx, cancel := context.WithCancel(redistest.Soon(t))
		defer cancel()
		events, err := sub.Subscribe(ctx)
		must(t, err)
		engine, out := forwarder(t, message.AckOnSuccess)
		must(t, engine.AddRawInput("outbox", nil, events))
		done := make(chan error, 1)
		go func() { done <- engine.Run(ctx) }()
		go func() {
			for event := range out {
				event.Nack(errors.New("the destination rejects it"))
			}
		}()
		redistest.Eventually(t, "the event to be lost, or the Engine to stop", func() bool {
			delivered := sub.Stats().Delivered > 0 // before XPENDING: a delivered event is pending until it is acked
			pending, err := client.XPending(ctx, key, stream.OutboxGroup).Result()
			must(t, err)
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

func TestRedeliveryDoesNotLoseOutputsUnderAckForward(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, err := luatx.New(client, luatx.Config{Namespace: redistest.Namespace(t)})
		must(t, err)
		prefix := redistest.Tag(t)
		marks := pipeline.SetNXConfig{MarkKey: func(id message.Identity) string { return prefix + id.ID }}
		for name, mw := range map[string][]message.Middleware{
			"scripted":  {luatx.Middleware(tr), inbox.Middleware(inbox.Config{})},
			"pipelined": {pipeline.SetNX(client, marks), pipeline.Middleware(client)},
		} {
			runs, lost := 0, error(nil)
			router := message.NewRouter(message.PipeConfig{AckStrategy: message.AckForward})
			must(t, router.Use(mw...))
			must(t, router.AddHandler(name, nil, message.NewHandler(func(context.Context, *message.TypedMessage[any]) ([]*message.Message, error) {
				runs++
				return []*message.Message{message.New(nil, message.Attributes{"type": "out"}, nil)}, nil
			})))
			deliver := func() ([]*message.Message, error) {
				return router.Process(redistest.Soon(t), message.New(nil, message.Attributes{"id": name, "source": "/s", "subject": "a", "type": "in"},
					message.NewAcking(nil, func(err error) { lost = err })))
			}
			outs, err := deliver()
			if err != nil {
				if wantUnsafe(t, err, "add an outbox"); runs > 0 {
					t.Errorf("%s: the handler ran %d times", name, runs)
				}
				continue
			}
			outs[0].Nack(errors.New("the destination rejects it"))
			if again, err := deliver(); lost != nil && len(again) == 0 {
				t.Errorf("%s: the redelivery has no outputs, error %v: they are lost", name, err)
			}
		}
	})
}

func TestRouterRejectsSetNXAroundScriptedTransactionBeforeFirstMessage(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: redistest.Namespace(t)})
	must(t, err)
	router := message.NewRouter(message.PipeConfig{})
	must(t, router.Use(pipeline.SetNX(client, pipeline.SetNXConfig{}), luatx.Middleware(tr)))
	_, err = router.Pipe(t.Context(), make(chan *message.Message))
	wantUnsafe(t, err, "replace it by inbox.Middleware")
}
