package acts

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/sleep"
)

// Cutoff returns the current time of the server in whole milliseconds, for the events that a preview shows. Shards record times in
// milliseconds, so Cutoff waits until this one has ended: events that are parked afterwards have a later time.
func Cutoff(ctx context.Context, client redis.Cmdable) (time.Time, error) {
	now, err := client.Time(ctx).Result()
	if err != nil {
		return time.Time{}, err
	}
	if !sleep.For(ctx, time.Millisecond) {
		return time.Time{}, context.Cause(ctx)
	}
	return now.Truncate(time.Millisecond), nil
}
