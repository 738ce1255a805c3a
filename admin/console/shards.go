package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/luatx/luatx/admin/internal/parts"
)

// slotsAtOnce is the number of slots in one pipeline.
const slotsAtOnce = 256

// parkedSince returns when the oldest parked event was parked, or zero if there is none.
func parkedSince(ctx context.Context, op *parts.Core) (since time.Time, err error) {
	for chunk := range slices.Chunk(op.Transactor.Keyspace().Slots(), slotsAtOnce) {
		edges, err := op.Scripts.FirstParked(ctx, chunk)
		if err != nil {
			return since, fmt.Errorf("console: read the first parked event: %w", err)
		}
		for _, edge := range edges {
			if since.IsZero() || edge.At.Before(since) {
				since = edge.At
			}
		}
	}
	return since, nil
}

// fullness is the usage of a shard, in percent of the limit that it uses most.
type fullness struct {
	Slot                  int
	Events, Parked, Bytes int64
	Percent               int
	Of, Level             string
}

// fullAlarm is the percentage at which the overview reports a shard.
const fullAlarm = 80

// fullest returns the fullest n shards, the fullest first.
func fullest(ctx context.Context, op *parts.Core, n int) ([]fullness, error) {
	var all []fullness
	limits := op.Transactor.Config()
	for chunk := range slices.Chunk(op.Transactor.Keyspace().Slots(), slotsAtOnce) {
		counts, err := op.Scripts.Counts(ctx, chunk)
		if err != nil {
			return nil, fmt.Errorf("console: read the counts of the shards: %w", err)
		}
		for slot, c := range counts {
			f := fullness{Slot: slot, Events: c.Events(), Parked: c.Parked, Bytes: c.Totals["bytes"]}
			if f.Events+f.Parked <= 0 {
				continue
			}
			f.measure("events", f.Events, limits.OutboxCapacity)
			f.measure("bytes", f.Bytes, limits.OutboxBytes)
			f.measure("parked", f.Parked, limits.ParkedCapacity)
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b fullness) int {
		return cmp.Or(cmp.Compare(b.Percent, a.Percent), cmp.Compare(b.Events+b.Parked, a.Events+a.Parked), cmp.Compare(a.Slot, b.Slot))
	})
	return all[:min(n, len(all))], nil
}

func (f *fullness) measure(of string, amount int64, limit int) {
	if limit <= 0 {
		return
	}
	percent := int(100 * amount / int64(limit))
	if percent < f.Percent || f.Of != "" && percent == f.Percent {
		return
	}
	f.Percent, f.Of = percent, of
	switch {
	case percent >= 100:
		f.Level = "bad"
	case percent >= fullAlarm:
		f.Level = "warn"
	}
}
