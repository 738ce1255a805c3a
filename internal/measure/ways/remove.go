package ways

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Remove removes every key that begins with the prefix, from all masters of a cluster.
func Remove(ctx context.Context, client redis.UniversalClient, prefix string) error {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return remove(ctx, node, prefix) })
	}
	return remove(ctx, client, prefix)
}

func remove(ctx context.Context, node redis.UniversalClient, prefix string) error {
	for cursor := uint64(0); ; {
		keys, next, err := node.Scan(ctx, cursor, prefix+"*", 1000).Result()
		if err != nil {
			return err
		}
		pipe := node.Pipeline() // one key each: on a node of a cluster they are of many slots
		for _, key := range keys {
			pipe.Unlink(ctx, key)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}
