package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// scanCount is the COUNT of a SCAN. cleanPasses is the maximum number of passes over all keys.
const (
	scanCount   = 1000
	cleanPasses = 5
)

// clean deletes every key that matches a pattern of SCAN, and nothing else.
func clean(ctx context.Context, client redis.UniversalClient, pattern string) error {
	for range cleanPasses {
		var gone atomic.Int64
		err := eachMaster(ctx, client, func(ctx context.Context, node redis.Cmdable) error {
			n, err := cleanNode(ctx, node, pattern)
			gone.Add(n)
			return err
		})
		if err != nil {
			return fmt.Errorf("delete the keys %s: %w", pattern, err)
		}
		if gone.Load() == 0 {
			return nil
		}
	}
	return fmt.Errorf("delete keys %s: new ones appear repeatedly", pattern)
}

// cleanNode scans one master and returns the number of keys that it deleted.
func cleanNode(ctx context.Context, node redis.Cmdable, pattern string) (gone int64, err error) {
	var cursor uint64
	for {
		keys, next, err := node.Scan(ctx, cursor, pattern, scanCount).Result()
		if err != nil {
			return gone, err
		}
		if len(keys) > 0 {
			pipe := node.Pipeline()
			for _, key := range keys { // one command for each, because on a cluster the keys are in many slots
				pipe.Unlink(ctx, key)
			}
			if _, err := pipe.Exec(ctx); err != nil {
				return gone, err
			}
			gone += int64(len(keys))
		}
		if cursor = next; cursor == 0 {
			return gone, nil
		}
	}
}
