package nemesis

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// drawn lists the first faults of a schedule, with one random number of each.
func drawn(seed uint64, track string, n int) (list []string, kinds map[string]int) {
	kinds = make(map[string]int)
	s := newSchedule(seed, track, processKinds)
	for range n {
		pause, k, rng := s.next()
		list = append(list, fmt.Sprint(pause, k.name, rng.Uint64()))
		kinds[k.name]++
	}
	return list, kinds
}

func TestSeedDeterminesSchedule(t *testing.T) {
	t.Parallel()
	const rounds = 10
	turns := rounds * len(processKinds)
	first, kinds := drawn(7, "processes", turns)
	again, _ := drawn(7, "processes", turns)
	if !slices.Equal(first, again) {
		t.Error("the same seed resulted in two schedules")
	}
	for name, other := range map[string][]string{
		"another seed":  func() []string { list, _ := drawn(8, "processes", turns); return list }(),
		"another track": func() []string { list, _ := drawn(7, "network", turns); return list }(),
	} {
		if slices.Equal(first, other) {
			t.Errorf("%s resulted in the same schedule", name)
		}
	}
	for name, n := range kinds {
		if n != rounds {
			t.Errorf("%s occurs in %d of %d faults", name, n, turns)
		}
	}
}

func TestKindNamesAreUnique(t *testing.T) {
	t.Parallel()
	names := Kinds()
	slices.Sort(names)
	if compact := slices.Compact(slices.Clone(names)); len(compact) != len(names) || len(names) < 20 {
		t.Errorf("%v", names)
	}
}

func TestOutageMeetsCommitsThatMayBeLost(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	o := Outage{Branches: []int{1, 3}, From: start, To: start.Add(4 * time.Second)}
	for _, c := range []struct {
		branch   int
		from, to time.Duration
		want     bool
	}{
		{1, 0, 0, true},
		{3, 4 * time.Second, 4 * time.Second, true},
		{3, -lagBefore, -lagBefore, true}, // a replica lags behind
		{2, time.Second, time.Second, false},
		{1, -lagBefore - 1, -lagBefore - 1, false},
		{1, 4*time.Second + 1, 4*time.Second + 1, false},
		{1, -time.Hour, time.Hour, true},
		{1, 5 * time.Second, time.Hour, false},
		{2, 0, 1, false},
	} {
		if got := o.Meets(c.branch, start.Add(c.from).UnixNano(), start.Add(c.to).UnixNano()); got != c.want {
			t.Errorf("branch %d from %v to %v: Meets returned %v", c.branch, c.from, c.to, got)
		}
	}
}
