package pulse_test

import (
	"slices"
	"testing"
	"time"

	"github.com/luatx/luatx/torture/internal/pulse"
	"github.com/luatx/luatx/torture/internal/work"
)

func TestNextReturnsTheFirstCommitOfABranchAfterATime(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := func(ms int64) int64 { return start.UnixNano() + ms*1e6 }
	p := pulse.New(start, 2)
	first := p.Next([]int{1}, start.Add(150*time.Millisecond))
	inside := p.Next([]int{0, 1}, start.Add(230*time.Millisecond))
	p.Add(work.Note{Commits: []work.Count{{N: 5, First: at(10), Last: at(190)}, {N: 1, First: at(100), Last: at(140)}}})
	select {
	case got := <-first:
		t.Errorf("Next returned the commit at %d, which is of another branch or too early", got-start.UnixNano())
	default:
	}
	p.Add(work.Note{Commits: []work.Count{{}, {N: 7, First: at(210), Last: at(290)}}})
	if got := <-first; got != at(210) {
		t.Errorf("Next returned the commit at %d, want the first", got-start.UnixNano())
	}
	if got := <-inside; got != at(290) { // commits in between are not recorded
		t.Errorf("Next returned the commit at %d, want the first", got-start.UnixNano())
	}
	if got := p.Beats(); !slices.Equal(got, []int{0, 6, 7}) {
		t.Errorf("%v", got)
	}
}
