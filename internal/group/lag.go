package group

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"
)

// Lag returns the number of entries of a stream that a group has not read. It is -1 if there are some and the server does not
// know how many: before 7.0, or after entries were deleted.
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
