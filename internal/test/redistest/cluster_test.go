package redistest_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
)

func keySlot(t *testing.T, client *redis.ClusterClient, key string) int {
	t.Helper()
	slot, err := client.ClusterKeySlot(t.Context(), key).Result()
	redistest.Must(t, err)
	return int(slot)
}

// ends returns the master that serves a slot, and another one.
func ends(t *testing.T, cluster *redistest.Cluster3, slot int) (from, to *redistest.Server) {
	t.Helper()
	from, err := cluster.NodeForSlot(t.Context(), slot)
	redistest.Must(t, err)
	all, err := cluster.Masters(t.Context())
	redistest.Must(t, err)
	return from, all[slices.IndexFunc(all, func(s *redistest.Server) bool { return s != from })]
}

func TestMigrateSlotMovesKeys(t *testing.T) {
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
	from, to := ends(t, cluster, slot)
	migration, err := cluster.BeginMigration(ctx, slot, to)
	redistest.Must(t, err)
	redistest.Must(t, migration.MoveKeys(ctx, keys[0], "{"+tag+"}:missing"))
	assert.Equal(t, to.Client(t).DBSize(ctx).Val(), 1, "the number of keys at the new node")
	if err := client.MGet(ctx, keys[0], keys[1]).Err(); !redis.HasErrorPrefix(err, "TRYAGAIN") {
		t.Errorf("MGET during the migration: %v", err)
	}
	redistest.Must(t, migration.Finish(ctx))

	if now, err := cluster.NodeForSlot(ctx, slot); err != nil || now != to {
		t.Errorf("the slot is served by %v: %v", now, err)
	}
	got, err := client.MGet(ctx, keys...).Result()
	redistest.Must(t, err)
	if got[0] != "0" || got[149] != "149" {
		t.Errorf("got %v", got)
	}
	redistest.Must(t, cluster.MigrateSlot(ctx, slot, from)) // and back
	assert.Equal(t, from.Client(t).DBSize(ctx).Val(), 150, "the number of keys at the first node")
}

func TestReplicaTakesOverAfterItsMasterDies(t *testing.T) {
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
	assert.Equal(t, after.Pid(), 0, "the pid of a killed server")
	successor, err := cluster.WaitMaster(ctx, slot, after)
	redistest.Must(t, err)
	if successor != before || successor.Client(t).Get(ctx, tag).Val() != "v" {
		t.Errorf("the new master is %s, want %s", successor.Addr(), before.Addr())
	}
	redistest.Must(t, after.Restart(ctx))
	replica, err := cluster.ReplicaOf(ctx, successor)
	redistest.Must(t, err)
	assert.Equal(t, replica, after, "the replica")
}
