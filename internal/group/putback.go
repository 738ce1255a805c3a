package group

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/sleep"
)

// putBackTries is the maximum number of attempts to put an entry back while other writes to the dead-letter stream
// prevent it. putBackPause is the maximum time between two.
const (
	putBackTries = 100
	putBackPause = 5 * time.Millisecond
)

// PutBackPacked does the same as internal/lua/putback.lua in a transaction of the client, because a script cannot write so
// many fields. It returns the id of the new entry, or redis.Nil if the dead letter is gone.
func PutBackPacked(ctx context.Context, client redis.UniversalClient, key string, dead Dead) (entry string, err error) {
	for try := 1; ; try++ {
		err = client.Watch(ctx, func(tx *redis.Tx) error {
			there, err := tx.XRangeN(ctx, key, dead.ID, dead.ID, 1).Result()
			if err != nil {
				return err
			}
			if len(there) == 0 {
				return redis.Nil
			}
			var added *redis.StringCmd
			_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				added = pipe.XAdd(ctx, &redis.XAddArgs{Stream: dead.Stream, Values: dead.Fields})
				pipe.XDel(ctx, key, dead.ID)
				return nil
			})
			entry = added.Val()
			return err
		}, key)
		if !errors.Is(err, redis.TxFailedErr) || try == putBackTries || !sleep.For(ctx, rand.N(putBackPause)) {
			return entry, err
		}
	}
}
