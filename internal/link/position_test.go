package link_test

import (
	"testing"

	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/outbox"
)

func TestBoundIsReachedByTheCostOfScriptsAndEvents(t *testing.T) {
	t.Parallel()
	var unbounded outbox.Filter
	link.Spend(&unbounded, 1000, true)
	if link.Enough(&unbounded) {
		t.Error("a list without a bound ends")
	}
	for bound, want := range map[int]bool{161: false, 160: true, 159: true} {
		var f outbox.Filter
		link.Bound(&f, bound)
		link.Spend(&f, 40, false) // 60 with the script
		link.Spend(&f, 20, true)  // 100, because bodies count four times
		if link.Enough(&f) != want {
			t.Errorf("after a cost of 160, the bound %d is reached: %t", bound, !want)
		}
	}
}
