package admin_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

type ship struct{ Order string }

type shipped struct{ Order string }

// TestForgottenMessageProducesTheSameEventAgain processes messages once more after the inbox has forgotten them. The event that
// waits is not added again. The event that a relay has published is.
func TestForgottenMessageProducesTheSameEventAgain(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for name, at := range map[string]any{"time": time.Now(), "time as text": "2026-11-22T10:00:00.123456789+01:00", "no time": nil} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx := redistest.Soon(t)
				tr, op := admintest.Service(t, client, 1)
				counter, err := tr.Keyspace().Key("a", "n")
				redistest.Must(t, err)
				r := message.NewRouter(message.PipeConfig{})
				redistest.Must(t, r.Use(luatx.Middleware(tr), inbox.Middleware(inbox.Config{Scope: "ship"}), outbox.Middleware(outbox.Config{})))
				redistest.Must(t, r.AddHandler("ship", nil, message.NewCommandHandler(func(ctx context.Context, cmd ship) ([]shipped, error) {
					return []shipped{shipped(cmd)}, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, counter))
				}, message.CommandHandlerConfig{Source: "/shipping"})))
				deliver := func(id string) error {
					attrs := message.Attributes{"id": id, "source": "/shop", "type": "ship", "subject": "a"}
					if at != nil {
						attrs["time"] = at
					}
					_, err := r.Process(ctx, message.New(ship{id}, attrs, message.NewAcking(nil, nil)))
					return err
				}

				redistest.Must(t, deliver("sent"))
				published := make(chan *message.RawMessage, 10)
				relaying, err := relay.New(tr, relay.Func(func(_ context.Context, e *message.RawMessage) error {
					published <- e
					return nil
				}, relay.FuncConfig{}), relay.Config{})
				redistest.Must(t, err)
				stop := admintest.Running(t, relaying.Run)
				event := <-published
				stop()
				if got, ok := event.Time(); ok != (at != nil) || ok && !got.Equal(want(t, at)) {
					t.Errorf("the event has the time %v (%t), the message %v", got, ok, at)
				}
				redistest.Must(t, deliver("waits"))

				for _, id := range []string{"sent", "waits"} {
					forgot, err := op.Forget(ctx, "a", luatx.MessageID{Scope: "ship", Source: "/shop", ID: id}, "apply it again")
					if !forgot || err != nil {
						t.Fatalf("forgot %s: %t, %v", id, forgot, err)
					}
					if err := deliver(id); err != nil {
						t.Errorf("processed %s again: %v", id, err)
					}
				}
				if n := client.Get(ctx, counter).Val(); n != "4" {
					t.Errorf("applied %s times, want 4", n)
				}
				counts, err := outbox.NewStore(tr).Counts(ctx)
				if err != nil || counts.Pending != 2 || counts.Totals.Enqueued != 3 {
					t.Errorf("%d events wait, %d came, want 2 and 3; %v", counts.Pending, counts.Totals.Enqueued, err)
				}
				defer admintest.Running(t, relaying.Run)()
				if one, other := <-published, <-published; one.ID() != event.ID() && other.ID() != event.ID() {
					t.Errorf("published %s and %s, want %s again", one.ID(), other.ID(), event.ID())
				}
			})
		}
	})
}

// want returns the time of an attribute.
func want(t *testing.T, at any) time.Time {
	t.Helper()
	when, ok := message.Attributes{message.AttrTime: at}.Time()
	if !ok {
		t.Fatalf("%v is not a time", at)
	}
	return when
}
