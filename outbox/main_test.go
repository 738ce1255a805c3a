package outbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// newTransactor returns a Transactor with four partitions and a unique namespace.
func newTransactor(t testing.TB, client redis.UniversalClient, change ...func(*luatx.Config)) *luatx.Transactor {
	t.Helper()
	namespace := redistest.Namespace(t)
	cfg := luatx.Config{Namespace: namespace, Keyspace: luatx.Partitions(4).WithPrefix(namespace)}
	for _, c := range change {
		c(&cfg)
	}
	tr, err := luatx.New(client, cfg)
	redistest.Must(t, err)
	return tr
}

// scripted returns the middlewares that convert outputs into events of a transaction.
func scripted(tr *luatx.Transactor, cfg outbox.Config) []message.Middleware {
	return []message.Middleware{luatx.Middleware(tr), inbox.Middleware(inbox.Config{}), outbox.Middleware(cfg)}
}

// router returns a Router that runs handle, under the given name, inside the middlewares.
func router(t testing.TB, name string, handle func(context.Context) ([]*message.Message, error), mw ...message.Middleware) *message.Router {
	t.Helper()
	r := message.NewRouter(message.PipeConfig{})
	redistest.Must(t, r.Use(mw...))
	h := message.NewHandler(func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
		return handle(ctx)
	})
	redistest.Must(t, r.AddHandler(name, nil, h))
	return r
}

// order returns a message about aggregate a.
func order(id string) *message.Message {
	return message.New(nil, message.Attributes{"id": id, "source": "/shop", "type": "order", "subject": "a"}, message.NewAcking(nil, nil))
}

// outputs returns a handler that returns messages with these data.
func outputs(data ...any) func(context.Context) ([]*message.Message, error) {
	return func(context.Context) ([]*message.Message, error) {
		var out []*message.Message
		for _, d := range data {
			out = append(out, message.New(d, message.Attributes{"type": "sold", "source": "/shop"}, nil))
		}
		return out, nil
	}
}

// claimed claims the due events of all shards, like a relay.
func claimed(t testing.TB, tr *luatx.Transactor) []*message.RawMessage {
	t.Helper()
	var events []*message.RawMessage
	for _, slot := range tr.Keyspace().Slots() {
		claim, err := link.Of(tr).Scripts.Claim(redistest.Soon(t), link.Of(tr).Scripts.Shard(slot), shard.Claiming{Limit: 1000, Lease: time.Hour, Attempts: 10})
		redistest.Must(t, err)
		for _, e := range claim.Events {
			msg, err := outbox.Decode(e.Body)
			redistest.Must(t, err)
			if msg.ID() != e.ID {
				t.Errorf("event %q holds the message %q", e.ID, msg.ID())
			}
			events = append(events, msg)
		}
	}
	return events
}

// emit commits one transaction with events of these ids.
func emit(tr *luatx.Transactor, aggregate string, ids ...string) error {
	_, err := tr.Transact(context.Background(), aggregate, func(tx *luatx.Tx) error {
		for _, id := range ids {
			body := fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/s","type":"t","data":1}`, id)
			if err := tx.Emit(luatx.Event{ID: id, Body: body}); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}
