package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
)

// Position is the progress of a trigger without a group in its stream.
type Position struct {
	// Last is the id of the entry up to which the trigger has processed all entries. It is empty if there is none.
	Last string
	// Behind is the number of entries after Last, or -1 if there are more than 100.
	Behind int64
	// Oldest is the time at which the first of them was added, by its id. It is zero if there is none.
	Oldest time.Time
}

// mostBehind is the number of entries that Position counts.
const mostBehind = 100

// Position returns the progress of a trigger without a group by its LastIDKey. Without such a key the trigger keeps its position
// in memory only. Streams returns the progress of triggers with a group.
func (o *Operator) Position(ctx context.Context, stream, lastIDKey string) (Position, error) {
	var p Position
	last, err := o.core.Client.Get(ctx, lastIDKey).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return p, fmt.Errorf("admin: position %q: %w", lastIDKey, err)
	}
	p.Last = last
	entries, err := o.core.Client.XRangeN(ctx, stream, group.Behind(cmp.Or(last, "0-0")), "+", mostBehind+1).Result()
	if err != nil {
		return p, fmt.Errorf("admin: position in stream %q: %w", stream, err)
	}
	if p.Behind = int64(len(entries)); p.Behind > mostBehind {
		p.Behind = -1
	}
	if len(entries) > 0 {
		p.Oldest = group.Time(entries[0].ID)
	}
	return p, nil
}
