package redistest_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
)

func keySlot(t *testing.T, client *redis.ClusterClient, key string) int {
	t.Helper()
	slot, err := client.ClusterKeySlot(t.Context(), key).Result()
	redistest.Must(t, err)
	return int(slot)
}

func TestClusterMovesASlotWithItsKeys(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	client := cluster.Client(t)
	ctx := t.Context()
	tag := redistest.Tag(t)
	slot := keySlot(t, client, tag)
	var keys []string
	for i := range 150 {
		keys = append(keys, fmt.Sprintf("{%s}:%d", tag, i))
		redistest.Must(t, client.Set(ctx, keys[i], i, 0).Err())
	}
	from, err := cluster.NodeForSlot(ctx, slot)
	redistest.Must(t, err)
	all, err := cluster.Masters(ctx)
	redistest.Must(t, err)
	to := all[0]
	if to == from {
		to = all[1]
	}

	migration, err := cluster.BeginMigration(ctx, slot, to)
	redistest.Must(t, err)
	redistest.Must(t, migration.MoveKeys(ctx, keys[0], "{"+tag+"}:missing"))
	if n := to.Client(t).DBSize(ctx).Val(); n != 1 {
		t.Errorf("%d keys have moved, want 1", n)
	}
	if err := client.MGet(ctx, keys[0], keys[1]).Err(); !redis.HasErrorPrefix(err, "TRYAGAIN") {
		t.Errorf("keys on both sides: %v", err)
	}
	redistest.Must(t, migration.Finish(ctx))

	if now, err := cluster.NodeForSlot(ctx, slot); err != nil || now != to {
		t.Errorf("the slot is served by %v, %v", now, err)
	}
	got, err := client.MGet(ctx, keys...).Result()
	redistest.Must(t, err)
	if got[0] != "0" || got[149] != "149" {
		t.Errorf("got %v", got)
	}
	redistest.Must(t, cluster.MigrateSlot(ctx, slot, from)) // and back
	if n := from.Client(t).DBSize(ctx).Val(); n != 150 {
		t.Errorf("%d keys came back", n)
	}
}

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	client := cluster.Client(t)
	ctx := t.Context()
	tag := redistest.Tag(t)
	slot := keySlot(t, client, tag)
	redistest.Must(t, client.Set(ctx, tag, "v", 0).Err())

	before, err := cluster.NodeForSlot(ctx, slot)
	redistest.Must(t, err)
	after, err := cluster.Failover(ctx, slot)
	redistest.Must(t, err)
	if after == before || after.Client(t).Get(ctx, tag).Val() != "v" {
		t.Errorf("failed over from %s to %s", before.Addr(), after.Addr())
	}

	redistest.Must(t, after.Kill())
	if after.Pid() != 0 {
		t.Error("a killed server has a pid")
	}
	successor, err := cluster.WaitMaster(ctx, slot, after)
	redistest.Must(t, err)
	if successor != before || successor.Client(t).Get(ctx, tag).Val() != "v" {
		t.Errorf("succeeded by %s, want %s", successor.Addr(), before.Addr())
	}
	redistest.Must(t, after.Restart(ctx))
	replica, err := cluster.ReplicaOf(ctx, successor)
	redistest.Must(t, err)
	if replica != after {
		t.Errorf("the replica is %s, want %s", replica.Addr(), after.Addr())
	}
}
