package cluster_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
)

// TestClusterMigratingSlot holds the key that never exists: while a slot migrates nothing runs, for a key that
// a script empties there could not be touched again, and its undo would lose it.
func TestClusterMigratingSlot(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	client := cluster.Client(t)
	ctx, log := redistest.Soon(t), &rig.Lines{}
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	k, wrong := rig.Key(t, tr, "a", "k"), rig.Key(t, tr, "a", "wrong")
	if _, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		tx.Pipeline().Set(ctx, k, "precious", 0)
		tx.Pipeline().Set(ctx, wrong, "text", 0)
		return tx.Emit(luatx.Event{Body: []byte("{}")})
	}, luatx.WithID("1")); err != nil {
		t.Fatal(err)
	}
	// Every other key that the next commit declares exists.
	n := slot.OfTag("a")
	shard := link.Of(tr).Scripts.Shard(n)
	client.HSet(ctx, shard.Key("inbox:b"), "x", "y")
	client.HSet(ctx, shard.Key("broken"), "x", "y")
	source, err := cluster.NodeForSlot(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	masters, err := cluster.Masters(ctx)
	if err != nil {
		t.Fatal(err)
	}
	target := masters[0]
	if target == source {
		target = masters[1]
	}
	migration, err := cluster.BeginMigration(ctx, n, target)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := migration.Finish(ctx); err != nil {
		t.Fatal(err)
	}
	var failed *luatx.CommandError
	if err := <-done; !errors.As(err, &failed) || failed.Index != 1 {
		t.Errorf("error %v", err)
	}
	if got := client.Get(ctx, k).Val(); got != "precious" {
		t.Errorf("the key holds %q", got)
	}
}
