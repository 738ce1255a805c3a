package group

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"
)

// Lag returns the number of entries of a stream that a group has not read. It returns -1 if there are such entries and
// the server cannot count them, which is the case before Redis 7.0 and after entries were deleted. Redis 7.0 also counts deleted
// entries that the group has not read, so a group without entries behind its last one has read everything.
func Lag(ctx context.Context, client redis.Cmdable, stream string, info redis.XInfoGroup) (int64, error) {
	if info.Lag == 0 && info.EntriesRead > 0 {
		return 0, nil
	}
	unread, err := client.XRangeN(ctx, stream, Behind(cmp.Or(info.LastDeliveredID, "0-0")), "+", 1).Result()
	switch {
	case len(unread) == 0:
		return 0, err
	case info.Lag > 0:
		return info.Lag, nil
	}
	return -1, nil
}
