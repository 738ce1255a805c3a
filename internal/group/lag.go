package group

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"
)

// Lag returns the number of entries of a stream that a group has not read. It returns -1 if there are such entries and
// the server cannot count them, which is the case before Redis 7.0 and after entries were deleted.
func Lag(ctx context.Context, client redis.Cmdable, stream string, info redis.XInfoGroup) (int64, error) {
	if info.Lag > 0 || info.Lag == 0 && info.EntriesRead > 0 {
		return info.Lag, nil
	}
	unread, err := client.XRangeN(ctx, stream, Behind(cmp.Or(info.LastDeliveredID, "0-0")), "+", 1).Result()
	if len(unread) > 0 {
		return -1, err
	}
	return 0, err
}
