package redistest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
)

func keySlot(t *testing.T, client *redis.ClusterClient, key string) int {
	t.Helper()
	slot, err := client.ClusterKeySlot(t.Context(), key).Result()
	must(t, err)
	return int(slot)
}

func TestSharedClusterServesEverySlot(t *testing.T) {
	t.Parallel()
	client := redistest.SharedCluster(t).Client(t)
	for range 50 {
		key := redistest.Tag(t)
		must(t, client.Set(t.Context(), key, "v", 0).Err())
		must(t, client.Del(t.Context(), key).Err())
	}
	count := 0
	must(t, client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error { return node.Ping(ctx).Err() }))
	//lint:ignore SA1019 older servers know nothing else
	slots, err := client.ClusterSlots(t.Context()).Result() //nolint:staticcheck // older servers know nothing else
	must(t, err)
	for _, r := range slots {
		count += len(r.Nodes)
	}
	if len(slots) != 3 || count != 6 {
		t.Errorf("%d ranges on %d nodes", len(slots), count)
	}
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
		must(t, client.Set(ctx, keys[i], i, 0).Err())
	}
	from, err := cluster.NodeForSlot(ctx, slot)
	must(t, err)
	all, err := cluster.Masters(ctx)
	must(t, err)
	to := all[0]
	if to == from {
		to = all[1]
	}

	migration, err := cluster.BeginMigration(ctx, slot, to)
	must(t, err)
	must(t, migration.MoveKeys(ctx, keys[0], "{"+tag+"}:missing"))
	if n := to.Client(t).DBSize(ctx).Val(); n != 1 {
		t.Errorf("%d keys have moved, want 1", n)
	}
	if err := client.MGet(ctx, keys[0], keys[1]).Err(); !redis.HasErrorPrefix(err, "TRYAGAIN") {
		t.Errorf("keys on both sides: %v", err)
	}
	must(t, migration.Finish(ctx))

	if now, err := cluster.NodeForSlot(ctx, slot); err != nil || now != to {
		t.Errorf("the slot is served by %v, %v", now, err)
	}
	got, err := client.MGet(ctx, keys...).Result()
	must(t, err)
	if got[0] != "0" || got[149] != "149" {
		t.Errorf("got %v", got)
	}
	must(t, cluster.MigrateSlot(ctx, slot, from)) // and back
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
	must(t, client.Set(ctx, tag, "v", 0).Err())

	before, err := cluster.NodeForSlot(ctx, slot)
	must(t, err)
	after, err := cluster.Failover(ctx, slot)
	must(t, err)
	if after == before || after.Client(t).Get(ctx, tag).Val() != "v" {
		t.Errorf("failed over from %s to %s", before.Addr(), after.Addr())
	}

	killed, err := cluster.KillMaster(ctx, slot)
	must(t, err)
	if killed != after || killed.Pid() != 0 {
		t.Errorf("killed %s, want %s", killed.Addr(), after.Addr())
	}
	successor, err := cluster.WaitMaster(ctx, slot, killed)
	must(t, err)
	if successor != before || successor.Client(t).Get(ctx, tag).Val() != "v" {
		t.Errorf("succeeded by %s, want %s", successor.Addr(), before.Addr())
	}
	must(t, killed.Restart(ctx))
	replica, err := cluster.ReplicaOf(ctx, successor)
	must(t, err)
	if replica != killed {
		t.Errorf("the replica is %s, want %s", replica.Addr(), killed.Addr())
	}
}
