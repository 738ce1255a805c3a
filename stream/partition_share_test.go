package stream

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever the numbers, every partition is somebody's share, and nobody has two more than another.
func TestShares(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, members := rapid.IntRange(1, 16384).Draw(t, "partitions"), rapid.IntRange(1, 200).Draw(t, "members")
		sum, first, last := 0, share(0, members, n), share(members-1, members, n)
		for rank := range members {
			one := share(rank, members, n)
			if one > first || one < last {
				t.Fatalf("the member of rank %d has %d, want from %d to %d", rank, one, last, first)
			}
			sum += one
		}
		if sum != n || first-last > 1 || first > (n+members-1)/members {
			t.Fatalf("the shares, from %d to %d, add up to %d, want %d", last, first, sum, n)
		}
	})
}
