package admin_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stream"
)

// TestOperatorFreesServerAtMaxmemory runs every operation that frees memory, or lets relays publish, while the server
// rejects commits.
func TestOperatorFreesServerAtMaxmemory(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t, redistest.Own()).Client(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: redistest.Namespace(t), Keyspace: luatx.Partitions(1)})
	redistest.Must(t, err)
	op, err := admin.NewOperator(tr, admin.OperatorConfig{Client: client, Name: "alice"})
	redistest.Must(t, err)
	slot := tr.Keyspace().Slots()[0]
	ctx := redistest.Soon(t)

	store := op.Outbox()
	prepare(t, tr, op, client)
	redistest.Must(t, redistest.AsAdmin(t, client).ConfigSet(ctx, "maxmemory", "1").Err())
	commit := func() error {
		_, err := tr.Transact(ctx, "a", func(*luatx.Tx) error { return nil }, luatx.WithID("refused"))
		return err
	}
	if err := commit(); !errors.Is(err, &luatx.RefusedError{Code: "OOM"}) {
		t.Fatalf("the server is not full: %v", err)
	}

	done := func(answers outbox.Answers, err error) error {
		if err == nil && answers.Done() != 1 {
			return fmt.Errorf("outcomes %v", answers)
		}
		return err
	}
	did := func(ok bool, err error) error {
		if err == nil && !ok {
			return errors.New("nothing was done")
		}
		return err
	}
	for name, act := range map[string]func() error{
		"erase parked": func() error { return done(store.Erase(ctx, slot, "test", "parked-0")) },
		"erase sent":   func() error { return done(store.Erase(ctx, slot, "test", "sent")) },
		"discard":      func() error { return done(store.Discard(ctx, slot, "test", "parked-1")) },
		"rearm":        func() error { return done(store.Rearm(ctx, slot, "parked-2")) },
		"cancel":       func() error { return did(store.Cancel(ctx, "a", "scheduled")) },
		"forget":       func() error { return did(op.Forget(ctx, "a", known, "test")) },
		"pause":        func() error { return op.Pause(ctx, "bank", "test", time.Time{}) },
		"resume":       func() error { return did(op.Resume(ctx, "shop")) },
		"fix": func() error {
			fixed := 0
			for f, err := range op.Fix(ctx) {
				if err != nil {
					return err
				}
				if f.Fixed {
					fixed++
				}
			}
			return did(fixed == 1, nil)
		},
		"trim": func() error {
			n, err := stream.TrimAcked(ctx, client, "s", true)
			return did(n == 1, err)
		},
	} {
		if err := act(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := commit(); !errors.Is(err, &luatx.RefusedError{Code: "OOM"}) {
		t.Errorf("a commit returned %v", err)
	}
}

// known is a message in the inbox.
var known = luatx.MessageID{Scope: "transact", ID: "known"}

// prepare creates data for every operation: parked, sent and scheduled events, a damaged index, a message in the inbox, a
// paused destination and an acknowledged entry.
func prepare(t *testing.T, tr *luatx.Transactor, op *admin.Operator, client *redis.Client) {
	t.Helper()
	ctx := redistest.Soon(t)
	order(t, tr, "a", "bank", "", "sent", "parked-0", "parked-1", "parked-2")
	r, err := relay.New(tr, relay.Func(func(_ context.Context, e *message.RawMessage) error {
		if e.ID() == "sent" {
			return nil
		}
		return message.Permanent(errors.New("refused"))
	}, relay.FuncConfig{}), relay.Config{NoInline: true, KeepSentBodies: true, SweepInterval: 10 * time.Millisecond})
	redistest.Must(t, err)
	stop := admintest.Running(t, r.Run)
	redistest.Eventually(t, "the events are settled", func() bool {
		c, err := op.Outbox().Counts(ctx)
		return err == nil && c.Sent == 1 && c.Parked == 3
	})
	stop()
	_, err = tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		return tx.Emit(luatx.Event{ID: "scheduled", At: time.Now().Add(time.Hour), Body: []byte(`{"id":"scheduled"}`)})
	})
	redistest.Must(t, err)
	_, err = tr.Transact(ctx, "a", func(*luatx.Tx) error { return nil }, luatx.WithID(known.ID))
	redistest.Must(t, err)
	redistest.Must(t, op.Pause(ctx, "shop", "test", time.Time{}))
	shard := shardPrefix(t, client)
	redistest.Must(t, client.HSet(ctx, shard+"attempts", "gone", "1").Err())
	redistest.Must(t, client.XGroupCreateMkStream(ctx, "s", "g", "0").Err())
	entry, err := client.XAdd(ctx, &redis.XAddArgs{Stream: "s", Values: []string{"k", "v"}}).Result()
	redistest.Must(t, err)
	redistest.Must(t, client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{"s", ">"}}).Err())
	redistest.Must(t, client.XAck(ctx, "s", "g", entry).Err())
}

// shardPrefix returns the prefix of the keys of the only shard.
func shardPrefix(t *testing.T, client *redis.Client) string {
	t.Helper()
	keys, err := client.Keys(t.Context(), "*entries").Result()
	redistest.Must(t, err)
	if len(keys) != 1 {
		t.Fatalf("keys %q", keys)
	}
	return strings.TrimSuffix(keys[0], "entries")
}
