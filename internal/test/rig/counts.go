package rig

import (
	"testing"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
)

// Count reads a number of a shard, by its name.
func Count(t testing.TB, tr *luatx.Transactor, slot int, name string) int64 {
	t.Helper()
	counts, err := link.Of(tr).Scripts.Counts(redistest.Soon(t), []int{slot})
	redistest.Must(t, err)
	return CountOf(counts[slot], name)
}

// CountOf returns the number of events or of parked ones, or a counter.
func CountOf(c shard.Counts, name string) int64 {
	switch name {
	case "events":
		return c.Events()
	case "parked":
		return c.Parked
	}
	return c.Totals[name]
}
