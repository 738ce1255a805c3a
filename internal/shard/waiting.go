package shard

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Waiting returns the slots, of those given, in which events wait, due or not. It only reads.
func (s *Scripts) Waiting(ctx context.Context, slots []int) ([]int, error) {
	pipe := s.client.Pipeline()
	replies := make([]*redis.IntCmd, len(slots))
	for i, n := range slots {
		replies[i] = pipe.Exists(ctx, s.Shard(n).Key(keyPending))
	}
	_, err := pipe.Exec(ctx)
	var waiting []int
	for i, reply := range replies {
		if reply.Err() == nil && reply.Val() > 0 {
			waiting = append(waiting, slots[i])
		}
	}
	return waiting, err
}
