package inbox_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

var errHandler = errors.New("no such customer")

// deliver adds an entry to a stream of the aggregate, reads it, and returns it as a message.
func deliver(t testing.TB, client redis.UniversalClient, stream, id string) *message.Message {
	t.Helper()
	ctx := t.Context()
	client.XGroupCreateMkStream(ctx, stream, "g", "0") // fails if the group exists
	client.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{"id", id}})
	read, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{stream, ">"}, Count: 1}).Result()
	if err != nil || len(read[0].Messages) != 1 {
		t.Fatal(read, err)
	}
	msg := order(id)
	msg.SetAcking(message.NewAckingFrom(message.AckingConfig{
		Source: message.Source{Stream: stream, Group: "g", Consumer: "c", Entry: read[0].Messages[0].ID},
	}))
	return msg
}

func TestPrecheckSparesADuplicateItsHandlerAndCommitAcknowledgesIt(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for name, c := range map[string]struct {
			inside []message.Middleware
			runs   int
		}{
			"with":    {[]message.Middleware{inbox.Precheck()}, 1},
			"without": {nil, 3},
		} {
			ctx, tr, runs := redistest.Soon(t), rig.NewTransactor(t, client), 0
			in, n := rig.Key(t, tr, "a", "orders"), rig.Key(t, tr, "a", "n")
			mw := append([]message.Middleware{luatx.Middleware(tr), inbox.Middleware(inbox.Config{})}, c.inside...)
			r := router(t, "bill", func(ctx context.Context) error {
				runs++
				return luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, n))
			}, mw...)
			for delivery := range 3 {
				msg := deliver(t, client, in, "1")
				outputs, err := r.Process(ctx, msg)
				if want := 1 - min(delivery, 1); err != nil || len(outputs) != want {
					t.Errorf("%s, delivery %d: %d outputs, want %d; %v", name, delivery, len(outputs), want, err)
				}
				wantSettled(t, msg, true)
				pending, err := client.XPending(ctx, in, "g").Result()
				if err != nil || pending.Count != 0 { // these messages have no ack, so it was in the commit
					t.Errorf("%s, delivery %d: %+v pending, %v", name, delivery, pending, err)
				}
			}
			if got := client.Get(ctx, n).Val(); runs != c.runs || got != "1" {
				t.Errorf("%s: %d runs, want %d; applied %s times", name, runs, c.runs, got)
			}
		}
	})
}

func TestMessageIsAppliedOncePerScope(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for name, c := range map[string]struct {
			scopes  [2]string
			applied string
		}{
			"by handler":   {[2]string{"", ""}, "2"},
			"one for both": {[2]string{"billing", "billing"}, "1"},
			"one for each": {[2]string{"one", "two"}, "2"},
			"one given":    {[2]string{"billing", ""}, "2"},
		} {
			ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
			n := rig.Key(t, tr, "a", "n")
			for i, handler := range []string{"bill", "ship"} {
				r := router(t, handler, func(ctx context.Context) error {
					return luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, n))
				}, luatx.Middleware(tr), inbox.Middleware(inbox.Config{Scope: c.scopes[i]}))
				for range 2 {
					if _, err := r.Process(ctx, order("1")); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got := client.Get(ctx, n).Val(); got != c.applied {
				t.Errorf("%s: applied %s times, want %s", name, got, c.applied)
			}
		}
	})
}

// The ids of events are derived from the scope. Events that two services, or two handlers, emit for the same message must not
// have the same id.
func TestDefaultScopeNamesTheNamespaceAndTheHandler(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		one, other := rig.NewTransactor(t, client), rig.NewTransactor(t, client)
		eventID := func(tr *luatx.Transactor, handler string) (id string) {
			r := router(t, handler, func(ctx context.Context) error {
				if tx, ok := luatx.TxFromContext(ctx); ok {
					id = tx.EventID()
				}
				return errHandler // so that the message is delivered again
			}, luatx.Middleware(tr), inbox.Middleware(inbox.Config{}))
			if _, err := r.Process(redistest.Soon(t), order("1")); !errors.Is(err, errHandler) || id == "" {
				t.Fatalf("event %q, %v", id, err)
			}
			return id
		}
		first := eventID(one, "bill")
		if again := eventID(one, "bill"); again != first {
			t.Errorf("a redelivery derives the event id %s, want %s", again, first)
		}
		if eventID(other, "bill") == first {
			t.Error("two namespaces derive the same event id")
		}
		if eventID(one, "ship") == first {
			t.Error("two handlers derive the same event id")
		}
	})
}

func TestMessagesAreIdentifiedBySourceAndID(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		n := rig.Key(t, tr, "a", "n")
		r := router(t, "bill", func(ctx context.Context) error {
			return luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, n))
		}, luatx.Middleware(tr), inbox.Middleware(inbox.Config{}))
		for _, source := range []string{"/shop", "/web", "", "/shop"} {
			msg := order("1")
			msg.Attributes["source"] = source
			if _, err := r.Process(ctx, msg); err != nil {
				t.Fatal(err)
			}
		}
		nameless := order("")
		if _, err := r.Process(ctx, nameless); !message.IsPermanent(err) || err.Error() != "inbox: message has no ID attribute" {
			t.Errorf("no id: %v", err)
		}
		wantSettled(t, nameless, false)
		if got := client.Get(ctx, n).Val(); got != "3" {
			t.Errorf("applied %s times, want 3", got)
		}
	})
}

func TestPrecheckThatFailsIsAnErrorAndHandlerDoesNotRun(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	client := server.Client(t)
	tr := rig.NewTransactor(t, client)
	ran := false
	r := router(t, "bill", func(context.Context) error { ran = true; return nil },
		luatx.Middleware(tr), inbox.Middleware(inbox.Config{}), inbox.Precheck())
	user := cmp.Or(client.Options().Username, "default")
	redistest.Must(t, server.Admin(t).Do(t.Context(), "ACL", "SETUSER", user, "-evalsha", "-eval").Err())
	msg := order("1")
	_, err := r.Process(redistest.Soon(t), msg)
	if err == nil || !strings.HasPrefix(err.Error(), "inbox: ") || !strings.Contains(err.Error(), "NOPERM") || ran {
		t.Errorf("error %v, the handler ran: %t", err, ran)
	}
	wantSettled(t, msg, false)
}
