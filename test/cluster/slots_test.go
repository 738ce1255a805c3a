package cluster_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

// counter is a hook that counts the commands of a client.
type counter struct{ n atomic.Int64 }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// TestCrossSlotIsRejectedBeforeSending checks that a single server reports what a cluster would reject, with the keys and the
// reason.
func TestCrossSlotIsRejectedBeforeSending(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := t.Context(), rig.NewTransactor(t, client)
		sent := &counter{}
		client.AddHook(sent)
		for name, c := range map[string]struct {
			record func(p redis.Pipeliner)
			says   string
		}{
			"the first key": {func(p redis.Pipeliner) {
				p.Set(ctx, "{bar}", 1, 0)
			}, `set: key "{bar}" hashes to slot 5061, tag {foo} of the transaction to slot 12182`},
			"the second key": {func(p redis.Pipeliner) {
				p.Set(ctx, "{foo}:x", 1, 0)
				p.Set(ctx, "{bar}", 1, 0)
			}, `set: key "{bar}" hashes to slot 5061, key "{foo}:x" and tag {foo} of the transaction to slot 12182`},
			"two keys of one command": {func(p redis.Pipeliner) {
				p.Rename(ctx, "{foo}:x", "bar")
			}, `rename: key "bar" hashes to slot 5061, key "{foo}:x" and tag {foo} of the transaction to slot 12182`},
		} {
			_, err := tr.Transact(ctx, "foo", func(tx *luatx.Tx) error {
				c.record(tx.Pipeline()) // like an adapter that ignores the error
				return nil
			}, luatx.WithID("1"))
			if !errors.Is(err, luatx.ErrCrossSlot) || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(c.says)) {
				t.Errorf("%s: %v\nwant %s", name, err, c.says)
			}
		}
		assert.Equal(t, sent.n.Load(), 0, "commands sent")
	})
}

// TestIdentityIsFrozen checks the text with which a shard is compared. A changed text would lock every service out of its
// shards at its next deployment.
func TestIdentityIsFrozen(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	for _, c := range []struct {
		keyspace luatx.Keyspace
		want     string
	}{
		{luatx.Keyspace{}, "luatx 8, namespace shop.eu-1, own tags"},
		{luatx.OwnTags().WithPrefix("p"), "luatx 8, namespace shop.eu-1, own tags"}, // a prefix does not change slots
		{luatx.Partitions(7), "luatx 8, namespace shop.eu-1, 7 partitions"},
	} {
		client.FlushAll(t.Context())
		tr := rig.NewTransactor(t, client, func(cfg *luatx.Config) { cfg.Namespace, cfg.Keyspace = "shop.eu-1", c.keyspace })
		redistest.Must(t, assert.ErrOf(tr.Transact(t.Context(), "a", func(*luatx.Tx) error { return nil }, luatx.WithID("1"))))
		tag, err := c.keyspace.Tag("a")
		redistest.Must(t, err)
		inbox := "shop.eu-1:{" + slot.Text(slot.OfTag(tag)) + "}:inbox:a"
		got := client.HGet(t.Context(), inbox, "id").Val()
		if strings.TrimLeft(got, "0123456789") != c.want || len(got) != 40+len(c.want) {
			t.Errorf("the shard is %q, want %q behind 40 digits", got, c.want)
		}
	}
}

func TestMigratingSlotRejectsEveryScript(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	client := cluster.Client(t)
	ctx, log := redistest.Soon(t), &rig.Lines{}
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	scripts, n := link.Of(tr).Scripts, slot.OfTag("a")
	home := scripts.Shard(n)
	for _, id := range []string{"claimed", "settled", "parked"} {
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			return tx.Emit(luatx.Event{ID: id, Data: id})
		})
		redistest.Must(t, err)
	}
	// Every key that any script declares exists, except the one that never does.
	for _, hash := range []string{"inbox:b", "broken", "attempts", "errors"} {
		client.HSet(ctx, home.Key(hash), "x", "y")
	}
	for _, hash := range []string{"counts", "parked:by", "routes", "headers"} {
		client.HSet(ctx, home.Key(hash), "x", "1")
	}
	client.ZAdd(ctx, home.Key("lanes"), redis.Z{Member: "k\x000000000000000001\x00x"})
	client.XAdd(ctx, &redis.XAddArgs{Stream: home.Key("audit"), Values: []string{"operation", "0"}})
	client.ZAdd(ctx, home.Key("parked"), redis.Z{Member: "parked"})
	client.ZAdd(ctx, home.Key("sent"), redis.Z{Score: 1e18, Member: "x"})
	client.Set(ctx, home.Key("seq"), 1, 0)
	count := rig.Key(t, tr, "a", "count")
	client.Set(ctx, count, 0, 0)
	in := rig.NewInput(t, client, rig.Key(t, tr, "a", "orders"))
	msg := in.Deliver("c", rig.Order("1"))
	r := rig.NewCounter(t, tr, client, count)

	work := map[string]func(context.Context) error{
		"commit": func(ctx context.Context) error {
			return assert.ErrOf(r.Process(ctx, in.Message("c", rig.EntryOf(t, msg), rig.Order("1"))))
		},
		"resolve": func(ctx context.Context) error {
			_, _, _, err := link.Of(tr).Commits.Resolve(ctx, home, "0123456789abcdef", nil, "base5678\x00\x01", time.Now().Add(time.Minute))
			return err
		},
		"claim": func(ctx context.Context) error {
			return assert.ErrOf(scripts.Claim(ctx, home, shard.Claiming{Limit: 1, Lease: time.Minute, Attempts: 3}))
		},
		"settle": func(ctx context.Context) error {
			_, err := scripts.Settle(ctx, home, shard.Settling{Attempts: 3, Retention: time.Hour}, []shard.Settlement{{ID: "settled", What: "sent"}})
			return err
		},
		"enqueue": func(ctx context.Context) error {
			return assert.ErrOf(link.Of(tr).Commits.Enqueue(ctx, home, []shard.Event{{ID: "enqueued", Body: []byte("x")}}))
		},
		"scheduled": func(ctx context.Context) error {
			return assert.ErrOf(scripts.Schedule(ctx, home, "scheduled", time.Now()))
		},
		"rearm": func(ctx context.Context) error {
			return assert.ErrOf(scripts.Rearm(ctx, home, shard.Act{Operation: "1"}, time.Time{}, "", []string{"parked"}))
		},
		"discard": func(ctx context.Context) error {
			return assert.ErrOf(scripts.Discard(ctx, home, shard.Act{Operation: "2"}, []string{"discarded"}))
		},
		"erase": func(ctx context.Context) error {
			return assert.ErrOf(scripts.Erase(ctx, home, shard.Act{Operation: "3"}, []string{"erased"}))
		},
		"replay": func(ctx context.Context) error {
			return assert.ErrOf(scripts.Replay(ctx, home, shard.Act{Operation: "4"}, time.Now(), []string{"replayed"}))
		},
		"import": func(ctx context.Context) error {
			_, err := scripts.Import(ctx, home, shard.Act{Operation: "5"}, []shard.Imported{{ID: "imported", Parked: time.Now(), Body: []byte("x")}})
			return err
		},
	}
	_, target := rig.Masters(t, cluster, n)
	before := rig.Dump(t, client, tr)
	migration, err := cluster.BeginMigration(ctx, n, target)
	redistest.Must(t, err)
	for name, do := range work {
		short, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- do(short) }()
		redistest.Eventually(t, name+" to be turned away, or to end", func() bool { return turnedAway(log, name) || len(done) > 0 })
		cancel()
		if err := <-done; err == nil || !turnedAway(log, name) {
			t.Errorf("%s on a slot that migrates: %v", name, err)
		}
	}
	rig.NoTrace(t, client, tr, before)
	redistest.Must(t, migration.Finish(ctx))
	for name, do := range work {
		assert.NoError(t, do(ctx), "%s on a slot that has migrated", name)
	}
	if client.Get(ctx, count).Val() != "1" || in.Pending() != 0 {
		t.Errorf("applied %s times, %d entries pending", client.Get(ctx, count).Val(), in.Pending())
	}
}

// turnedAway reports whether a script got TRYAGAIN.
func turnedAway(log *rig.Lines, script string) bool {
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "script="+script+" ") && strings.Contains(line, "TRYAGAIN") {
			return true
		}
	}
	return false
}

// TestScriptReusesAKeyThatItEmptiedUnlessItsSlotMigrates checks the key that never exists: it keeps scripts from running while
// a slot migrates. Otherwise, a script could not use a key again that it has emptied, and its undo would lose the key.
func TestScriptReusesAKeyThatItEmptiedUnlessItsSlotMigrates(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	client := cluster.Client(t)
	ctx, log := redistest.Soon(t), &rig.Lines{}
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	k, wrong := rig.Key(t, tr, "a", "k"), rig.Key(t, tr, "a", "wrong")
	_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		tx.Pipeline().Set(ctx, k, "precious", 0)
		tx.Pipeline().Set(ctx, wrong, "text", 0)
		return tx.Emit(luatx.Event{Body: []byte("{}")})
	}, luatx.WithID("1"))
	redistest.Must(t, err)
	// Every other key that the next commit declares exists.
	n := slot.OfTag("a")
	shard := link.Of(tr).Scripts.Shard(n)
	client.HSet(ctx, shard.Key("inbox:b"), "x", "y")
	client.HSet(ctx, shard.Key("broken"), "x", "y")
	source, target := rig.Masters(t, cluster, n)
	migration, err := cluster.BeginMigration(ctx, n, target)
	redistest.Must(t, err)
	done := make(chan error, 1)
	attempts := rig.Executed(t, source.Client(t))
	go func() {
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			tx.Pipeline().Del(ctx, k)
			tx.Pipeline().HSet(ctx, wrong, "f", "v")
			tx.Pipeline().Set(ctx, k, "not reached", 0)
			return nil
		}, luatx.WithID("2"))
		done <- err
	}()
	redistest.Eventually(t, "the commit to be turned away, or to run", func() bool {
		return strings.Contains(log.String(), "TRYAGAIN") || rig.Executed(t, source.Client(t)) > attempts || len(done) > 0
	})
	redistest.Must(t, migration.Finish(ctx))
	var failed *luatx.CommandError
	if err := <-done; !errors.As(err, &failed) || failed.Index != 1 {
		t.Errorf("error %v", err)
	}
	assert.Equal(t, client.Get(ctx, k).Val(), "precious", "the key")
}

func TestMain(m *testing.M) { redistest.Main(m) }
