package repair

import (
	"slices"
	"testing"
)

// TestRoundsBeginAnywhere holds that each shard comes first now and then: where every round is cut short, by processes
// that are replaced more often than a round takes, the last shards would never be repaired.
func TestRoundsBeginAnywhere(t *testing.T) {
	t.Parallel()
	shards := []int{3, 5, 8, 13}
	first := make(map[int]bool)
	for range 1000 {
		round := anywhere(shards)
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
