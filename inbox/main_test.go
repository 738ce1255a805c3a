package inbox_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// router runs handle under the middlewares, as the handler of a name.
func router(t testing.TB, name string, handle func(context.Context) error, mw ...message.Middleware) *message.Router {
	t.Helper()
	r := message.NewRouter(message.PipeConfig{})
	if err := r.Use(mw...); err != nil {
		t.Fatal(err)
	}
	h := message.NewHandler(func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
		if err := handle(ctx); err != nil {
			return nil, err
		}
		return []*message.Message{message.New(nil, message.Attributes{"type": "done"}, nil)}, nil
	})
	if err := r.AddHandler(name, nil, h); err != nil {
		t.Fatal(err)
	}
	return r
}

// order is a message about aggregate a.
func order(id string) *message.Message {
	return message.New(nil, message.Attributes{"id": id, "source": "/shop", "type": "order", "subject": "a"}, message.NewAcking(nil, nil))
}

// wantSettled holds that the message was acked, or nacked.
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

// newTransactor returns a Transactor under a namespace of its own, whose keyspace shares the prefix.
func newTransactor(t testing.TB, client redis.UniversalClient) *luatx.Transactor {
	t.Helper()
	namespace := redistest.Namespace(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: namespace, Keyspace: luatx.OwnTags().WithPrefix(namespace)})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// key returns a key of aggregate a.
func key(t testing.TB, tr *luatx.Transactor, parts ...string) string {
	t.Helper()
	k, err := tr.Keyspace().Key("a", parts...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
