package inbox_test

import (
	"context"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// router returns a Router that runs handle, under the given name, inside the middlewares.
func router(t testing.TB, name string, handle func(context.Context) error, mw ...message.Middleware) *message.Router {
	t.Helper()
	r := message.NewRouter(message.PipeConfig{})
	redistest.Must(t, r.Use(mw...))
	h := message.NewHandler(func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
		if err := handle(ctx); err != nil {
			return nil, err
		}
		return []*message.Message{message.New(nil, message.Attributes{"type": "done"}, nil)}, nil
	})
	redistest.Must(t, r.AddHandler(name, nil, h))
	return r
}

// order returns a message about aggregate a.
func order(id string) *message.Message {
	return message.New(nil, rig.Order(id), message.NewAcking(nil, nil))
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
