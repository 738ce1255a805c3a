package pipeline_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/pipeline"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// pipelined returns the middlewares that add outputs to a stream.
func pipelined(client redis.UniversalClient, cfg pipeline.OutboxConfig) []message.Middleware {
	return []message.Middleware{pipeline.Middleware(client), pipeline.Outbox(cfg)}
}

// emitting returns a Router that runs handle, which returns outputs.
func emitting(t testing.TB, handle func(context.Context) ([]*message.Message, error), mw ...message.Middleware) *message.Router {
	t.Helper()
	return rig.NewRouter(t, message.PipeConfig{}, message.Chain(mw...), handle)
}

// router returns a Router that runs handle and then emits one message.
func router(t testing.TB, handle func(context.Context) error, mw ...message.Middleware) *message.Router {
	t.Helper()
	return emitting(t, func(ctx context.Context) ([]*message.Message, error) {
		if err := handle(ctx); err != nil {
			return nil, err
		}
		return outputs(nil)(ctx)
	}, mw...)
}

// order returns a message about aggregate a.
func order(id string) *message.Message {
	return message.New(nil, rig.Order(id), message.NewAcking(nil, nil))
}

// outputs returns a handler that emits one message for each of data.
func outputs(data ...any) func(context.Context) ([]*message.Message, error) {
	return func(context.Context) ([]*message.Message, error) {
		var out []*message.Message
		for _, d := range data {
			out = append(out, message.New(d, message.Attributes{"type": "sold", "source": "/shop"}, nil))
		}
		return out, nil
	}
}

// wantSettled fails the test unless the message was acked, or nacked.
func wantSettled(t testing.TB, msg *message.Message, acked bool) {
	t.Helper()
	select {
	case <-msg.Settled():
	default:
		t.Fatal("the message is not settled")
	}
	if (msg.Err() == nil) != acked {
		t.Errorf("acked %t, want %t (error %v)", msg.Err() == nil, acked, msg.Err())
	}
}
