package repair

import (
	"slices"
	"testing"

	"github.com/luatx/luatx/internal/shard"
)

// TestRoundReachesEachShardOnceFromTheLastPosition also checks that rounds without a position start at every shard now and
// then.
func TestRoundReachesEachShardOnceFromTheLastPosition(t *testing.T) {
	t.Parallel()
	shards := []int{3, 5, 8, 13}
	for at, want := range map[int][]int{3: shards, 8: {8, 13, 3, 5}, 9: {13, 3, 5, 8}, 14: shards, -5: shards} {
		if got := around(shards, at); !slices.Equal(got, want) {
			t.Errorf("from %d: %v, want %v", at, got, want)
		}
	}
	first := make(map[int]bool)
	for range 1000 {
		round := around(shards, shard.NoPlace)
		first[round[0]] = true
		slices.Sort(round)
		if !slices.Equal(round, shards) {
			t.Fatalf("a round over %v", round)
		}
	}
	if len(first) != len(shards) {
		t.Errorf("a thousand rounds began at %v alone", first)
	}
	if !slices.IsSorted(shards) {
		t.Error("the shards themselves have moved")
	}
}
