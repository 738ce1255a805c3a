package outbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// wantStorageError checks that Enqueue failed with a StorageError of the shard.
func wantStorageError(t *testing.T, store *outbox.Store, n int, err error) {
	t.Helper()
	slot, slotErr := store.Slot("a")
	redistest.Must(t, slotErr)
	var failed *outbox.StorageError
	if n != 0 || !errors.As(err, &failed) || failed.Op != "enqueue" || failed.Slot != slot || failed.Err == nil {
		t.Errorf("%d enqueued, %#v: %v; want a *StorageError of enqueue and slot %d", n, failed, err, slot)
	}
}

func TestEnqueueReturnsAStorageErrorAroundTheErrorOfTheShard(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr := newTransactor(t, client, onePartition, func(c *luatx.Config) { c.OutboxCapacity = 1 })
		store := outbox.NewStore(tr)
		n, err := store.Enqueue(ctx, "a", sold("1"))
		if n != 1 || err != nil {
			t.Fatal(n, err)
		}

		n, err = store.Enqueue(ctx, "a", sold("2"))
		wantStorageError(t, store, n, err)
		var full *luatx.OutboxFullError
		if !errors.As(err, &full) || full.What != "events" || full.Limit != 1 || !errors.Is(err, luatx.ErrOutboxFull) {
			t.Errorf("a full outbox: %v", err)
		}

		n, err = store.Enqueue(ctx, "a", sold("1"), sold("1", "subject", "another"))
		wantStorageError(t, store, n, err)
		var refused *luatx.CommandError
		if !errors.As(err, &refused) || refused.Index != -2 {
			t.Errorf("an id that is there with another body: %v", err)
		}

		others := outbox.NewStore(newTransactor(t, client, func(c *luatx.Config) {
			c.Namespace, c.Keyspace = tr.Config().Namespace, luatx.OwnTags()
		}))
		if _, err = others.Enqueue(ctx, tagIn(tr), sold("3")); !errors.Is(err, luatx.ErrKeyspace) || !isStorageError(err) {
			t.Errorf("a shard of another keyspace: %v", err)
		}

		ended, cancel := context.WithCancel(ctx)
		cancel()
		n, err = store.Enqueue(ended, "a", sold("4"))
		wantStorageError(t, store, n, err)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a context that has ended: %v", err)
		}

		redistest.Must(t, client.Set(ctx, link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[0]).Key("counts"), "of another type", 0).Err())
		n, err = store.Enqueue(ctx, "a", sold("5"))
		wantStorageError(t, store, n, err)
		if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("a key of another type: %v", err)
		}
	})
}

func TestEnqueueReturnsAStorageErrorIfTheServerIsOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	tr := newTransactor(t, server.Client(t))
	store := outbox.NewStore(tr)
	redistest.Must(t, tr.Check(redistest.Soon(t)))
	redistest.Must(t, server.Admin(t).ConfigSet(t.Context(), "maxmemory", "1").Err())
	n, err := store.Enqueue(redistest.Soon(t), "a", sold("1"))
	wantStorageError(t, store, n, err)
	if !errors.Is(err, &luatx.RefusedError{Code: "OOM"}) {
		t.Error(err)
	}
}

func TestEnqueueReturnsAStorageErrorIfTheServerDoesNotReply(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	tr := newTransactor(t, redistest.Client(t, proxy.Addr()), func(c *luatx.Config) { c.CommitTimeout = 2 * time.Second })
	store := outbox.NewStore(tr)
	n, err := store.Enqueue(redistest.Soon(t), "a", sold("1"))
	if n != 1 || err != nil {
		t.Fatal(n, err)
	}
	stop := proxy.On(func(cmd []string) respproxy.Action {
		if strings.EqualFold(cmd[0], "EVALSHA") {
			return respproxy.CutReply()
		}
		return respproxy.Pass()
	})
	n, err = store.Enqueue(redistest.Soon(t), "a", sold("2"))
	stop()
	wantStorageError(t, store, n, err)
	if !errors.Is(err, luatx.ErrOutcomeUnknown) {
		t.Errorf("replies lost: %v", err)
	}
	if n, err := store.Enqueue(redistest.Soon(t), "a", sold("2")); n != 0 || err != nil {
		t.Errorf("enqueued again: %d, %v", n, err)
	}

	redistest.Must(t, proxy.Close())
	cold := outbox.NewStore(newTransactor(t, redistest.Client(t, proxy.Addr()), func(c *luatx.Config) { c.CommitTimeout = time.Second }))
	n, err = cold.Enqueue(redistest.Soon(t), "a", sold("3"))
	wantStorageError(t, cold, n, err)
}

func TestEnqueueReturnsNoStorageErrorForAnEventThatNoServerSaw(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := newTransactor(t, client, func(c *luatx.Config) { c.MaxCommands, c.OutboxBytes = 2, 200 })
	store, ctx := outbox.NewStore(tr), redistest.Soon(t)
	scheduled := store.With(outbox.Config{At: func(*message.Message) (time.Time, error) { return time.UnixMilli(-1), nil }})
	failed := func(n int, err error) error {
		if n != 0 {
			t.Errorf("%d events are new, and %v", n, err)
		}
		return err
	}
	for what, c := range map[string]struct {
		err     error
		tooMuch bool
	}{
		"too many events": {failed(store.Enqueue(ctx, "a", sold("1"), sold("2"), sold("3"))), true},
		"too large":       {failed(store.Enqueue(ctx, "a", sold("1", "subject", strings.Repeat("x", 200)))), true},
		"no id":           {failed(store.Enqueue(ctx, "a", sold(""))), false},
		"no aggregate":    {failed(store.Enqueue(ctx, "", sold("1"))), false},
		"time":            {failed(scheduled.Enqueue(ctx, "a", sold("1"))), false},
	} {
		if c.err == nil || isStorageError(c.err) || errors.Is(c.err, luatx.ErrTooLarge) != c.tooMuch {
			t.Errorf("%s: %v", what, c.err)
		}
	}
}

func isStorageError(err error) bool {
	var failed *outbox.StorageError
	return errors.As(err, &failed)
}
