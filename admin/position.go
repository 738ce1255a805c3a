package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Position is how far a trigger without a group has come in its stream.
type Position struct {
	Stream string `json:"stream"`
	Key    string `json:"key"`
	// Last is the id of the last entry up to which all are done; empty: none is, or the trigger has not begun.
	Last string `json:"last,omitempty"`
	// Behind is how many entries follow that one; -1: more than 100.
	Behind int64 `json:"behind"`
	// Oldest is since when the first of them has been there, by its id; zero where none is.
	Oldest time.Time `json:"oldest,omitzero"`
}

// mostBehind is how many entries are counted one by one.
const mostBehind = 100

// Position tells how far a trigger without a group has come, by its LastIDKey. What it keeps in memory alone, without such a
// key, Redis does not know. Triggers with a group are among Streams.
func (o *Operator) Position(ctx context.Context, stream, lastIDKey string) (Position, error) {
	p := Position{Stream: stream, Key: lastIDKey}
	last, err := o.cfg.Client.Get(ctx, lastIDKey).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return p, fmt.Errorf("admin: position %q: %w", lastIDKey, err)
	}
	p.Last = last
	entries, err := o.cfg.Client.XRangeN(ctx, stream, behind(cmp.Or(last, "0-0")), "+", mostBehind+1).Result()
	if err != nil {
		return p, fmt.Errorf("admin: position in stream %q: %w", stream, err)
	}
	if p.Behind = int64(len(entries)); p.Behind > mostBehind {
		p.Behind = -1
	}
	if len(entries) > 0 {
		text, _, _ := strings.Cut(entries[0].ID, "-")
		ms, _ := strconv.ParseInt(text, 10, 64)
		p.Oldest = time.UnixMilli(ms)
	}
	return p, nil
}
