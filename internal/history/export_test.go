package history

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/shard"
)

// Write adds pairs.
func (h *History) Write(ctx context.Context, pause time.Duration, pairs ...any) (turn bool, err error) {
	return h.write(ctx, pause, pairs)
}

// Keys returns the keys without numbers of intervals.
func (h *History) Keys() []string { return h.keys }

// IntervalKey returns the key of an interval.
func (h *History) IntervalKey(r Resolution, at time.Time) string {
	prefix := keyFine
	if r == Coarse() {
		prefix = keyCoarse
	}
	return h.key(prefix, r.number(at))
}

// Scripts returns the scripts that read shards.
func (h *History) Scripts() *shard.Scripts { return h.cfg.Scripts }

// Pairs returns the arguments of the script.
func (g Gauges) Pairs() []any { return g.pairs() }
