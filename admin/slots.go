package admin

import (
	"context"
	"fmt"
	"slices"

	"github.com/luatx/luatx/internal/slot"
)

// slotsAtOnce is the number of shards that one pipeline reads.
const slotsAtOnce = 256

// slotsOf returns the slots of a filter, or all slots of the keyspace if it has none.
func (o *Operator) slotsOf(filter []int) ([]int, error) {
	if len(filter) == 0 {
		return o.transactor.Keyspace().Slots(), nil
	}
	for _, n := range filter {
		if n < 0 || n >= slot.Count {
			return nil, fmt.Errorf("slot %d does not exist; use 0 to %d", n, slot.Count-1)
		}
	}
	return filter, nil
}

// inEachShard searches every shard of the keyspace for a name, and returns the results by slot.
func inEachShard[F, T any](ctx context.Context, o *Operator, name string, find func(context.Context, []int, string) (map[int]F, error), of func(int, F) T) ([]T, error) {
	var all []T
	for chunk := range slices.Chunk(o.transactor.Keyspace().Slots(), slotsAtOnce) {
		found, err := find(ctx, chunk, name)
		if err != nil {
			return nil, err
		}
		for _, n := range chunk {
			if one, ok := found[n]; ok {
				all = append(all, of(n, one))
			}
		}
	}
	return all, nil
}
