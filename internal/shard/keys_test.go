package shard

import (
	"log/slog"
	"sync"
	"testing"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/slot"
)

// TestOneShard holds that all who ask for a slot's shard at once are given the same: what is of one slot shares a script
// by it.
func TestOneShard(t *testing.T) {
	t.Parallel()
	s := New(eval.New(nil, "shop", slog.Default()), Constants{Namespace: "shop"})
	const askers = 4
	var given [askers][slot.Count]Shard
	var begin, asking sync.WaitGroup
	begin.Add(1)
	for i := range askers {
		asking.Go(func() {
			begin.Wait()
			for n := range slot.Count {
				given[i][n] = s.Shard(n)
			}
		})
	}
	begin.Done()
	asking.Wait()
	for n := range slot.Count {
		for i := range askers {
			if given[i][n] != given[0][n] {
				t.Fatalf("slot %d has two shards", n)
			}
		}
	}
}
