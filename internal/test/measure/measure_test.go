package measure

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/luatx/luatx/internal/test/assert"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOverReturnsMedianMinimumAndMaximum(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		values []float64
		want   Spread
	}{
		{nil, Spread{}},
		{[]float64{2}, Spread{2, 2, 2}},
		{[]float64{3, 1}, Spread{2, 1, 3}},
		{[]float64{9, 1, 2}, Spread{2, 1, 9}},
		{[]float64{4, 1, 3, 100}, Spread{3.5, 1, 100}},
	} {
		assert.Equal(t, Over(test.values), test.want, "%v", test.values)
	}
}

// TestRatioIsComputedPerRound has a machine that is ten times slower in its second round, which would change a ratio of
// medians.
func TestRatioIsComputedPerRound(t *testing.T) {
	t.Parallel()
	sample := func(ops int) Sample { return Sample{Ops: ops, Took: time.Second, ServerCPU: time.Second} }
	table := Table{Cell: "c", Ways: []string{"base", "fast"}, Rounds: [][]Sample{
		{sample(100), sample(300)}, {sample(10), sample(20)}, {sample(110), sample(440)},
	}}
	if got, err := table.Ratio("fast", "base", Throughput); err != nil || got != (Spread{3, 2, 4}) {
		t.Error(got, err)
	}
	if got, err := table.Ratio("fast", "base", ServerCPUs); err != nil || math.Abs(got.Median-1./3) > 1e-9 {
		t.Error(got, err)
	}
	if got, err := table.Value("base", Throughput); err != nil || got != (Spread{100, 10, 110}) {
		t.Error(got, err)
	}
	for _, names := range [][2]string{{"fast", "none"}, {"none", "base"}} {
		if _, err := table.Ratio(names[0], names[1], Throughput); err == nil || !strings.Contains(err.Error(), `"none" was not measured`) {
			t.Error(names, err)
		}
	}
	if got, err := table.Ratio("fast", "base", P99); err != nil || got != (Spread{}) {
		t.Error("a way that was not measured has a value:", got, err)
	}
}

func TestHistogramReturnsQuantiles(t *testing.T) {
	t.Parallel()
	var h, other histogram
	assert.Equal(t, h.quantile(.5), 0, "the median of an empty histogram")
	for i := 1; i <= 1000; i++ {
		d := time.Duration(i) * time.Microsecond
		if i%2 == 0 {
			h.add(d)
		} else {
			other.add(d)
		}
	}
	h.merge(&other)
	for q, want := range map[float64]float64{.5: 500, .99: 990, 1: 1000, 0: 1} {
		if got := micros(h.quantile(q)); math.Abs(got-want) > .03*want {
			t.Errorf("quantile %v is %v µs, want %v", q, got, want)
		}
	}
}

func TestBucketsAreContiguousAndContainTheirMiddle(t *testing.T) {
	t.Parallel()
	for n, last := uint64(0), -1; n < 1<<14; n++ {
		b := bucket(n)
		if b != last && b != last+1 {
			t.Fatalf("%d is in bucket %d, but its predecessor is in %d", n, b, last)
		}
		last = b
	}
	for b := range bucket(math.MaxInt64) + 1 {
		if got := bucket(middle(b)); got != b {
			t.Fatalf("the middle of bucket %d is in bucket %d", b, got)
		}
	}
	assert.Equal(t, bucket(math.MaxUint64), buckets-1, "the last bucket")
}

func TestCPUOfServerNeedsUserAndSystemTime(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		numbers map[string]string
		want    time.Duration
	}{
		{map[string]string{"used_cpu_sys": "1.5", "used_cpu_user": "2.25", "used_cpu_sys_children": "9"}, 3750 * time.Millisecond},
		{nil, 0},
		{map[string]string{"used_cpu_sys": "1"}, 0},
		{map[string]string{"used_cpu_sys": "x", "used_cpu_user": "1"}, 0},
	} {
		info := redis.NewInfoCmd(t.Context(), "info", "cpu")
		info.SetVal(map[string]map[string]string{"CPU": test.numbers})
		if got, err := cpuOf(info); got != test.want || (err == nil) != (test.want > 0) {
			t.Errorf("%v: %v, %v", test.numbers, got, err)
		}
	}
}

// sleeper is a way whose operations take d each; it notes what it is asked for.
type sleeper struct {
	d                        time.Duration
	mu                       sync.Mutex
	rounds, prepared, closed int
	seen                     []int
	err                      error
}

func (s *sleeper) way(name string, log *[]string, change ...func(*Running)) Way {
	return Way{Name: name, Setup: func(context.Context, Cell) (*Running, error) {
		r := &Running{
			Prepare: func(_ context.Context, n int) error {
				s.rounds, s.prepared, s.seen = s.rounds+1, n, nil
				*log = append(*log, name)
				return nil
			},
			Op: func(_ context.Context, _, i int) error {
				<-time.After(s.d)
				s.mu.Lock()
				defer s.mu.Unlock()
				s.seen = append(s.seen, i)
				return s.err
			},
			CPU:   func(context.Context) (time.Duration, error) { return time.Duration(s.rounds) * time.Second, nil },
			Close: func() { s.closed++ },
		}
		for _, c := range change {
			c(r)
		}
		return r, nil
	}}
}

func TestInterleaveMeasuresEachWayInEveryRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow, fast := &sleeper{d: 3 * time.Millisecond}, &sleeper{d: time.Millisecond}
		var log []string
		table, err := Interleave(t.Context(), Cell{Name: "c", Callers: 4}, []Way{slow.way("slow", &log), fast.way("fast", &log)}, 5, time.Second)
		assert.Must(t, err)
		if got, err := table.Ratio("fast", "slow", Throughput); err != nil || math.Abs(got.Median-3) > .05 || math.Abs(got.High-3) > .05 {
			t.Error(got, err)
		}
		if got, err := table.Value("slow", P99); err != nil || math.Abs(got.Median-3) > .1 {
			t.Error(got, err)
		}
		if len(table.Rounds) != 5 || slow.closed != 1 || fast.closed != 1 {
			t.Error(len(table.Rounds), slow.closed, fast.closed)
		}
		for _, s := range []*sleeper{slow, fast} {
			slices.Sort(s.seen)
			if len(s.seen) != s.prepared || s.seen[0] != 0 || s.seen[len(s.seen)-1] != s.prepared-1 || len(slices.Compact(s.seen)) != s.prepared {
				t.Errorf("%d of %d prepared operations ran", len(s.seen), s.prepared)
			}
		}
		for _, round := range table.Rounds {
			for _, s := range round {
				if s.Took < 900*time.Millisecond || s.Took > 1100*time.Millisecond {
					t.Errorf("a round took %v, want about a second", s.Took)
				}
			}
		}
		order := log[len(log)-10:]
		if first := []string{order[0], order[2], order[4], order[6], order[8]}; len(slices.Compact(slices.Sorted(slices.Values(first)))) != 2 {
			t.Errorf("the same way ran first in every round: %v", order)
		}
	})
}

// TestRoundsKeepTheirLengthAfterASlowWarmUp has a way that is held up in its warm-up, and is ten times faster from then on.
func TestRoundsKeepTheirLengthAfterASlowWarmUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{d: 10 * time.Millisecond}
		var log []string
		way := s.way("way", &log, func(r *Running) {
			prepare := r.Prepare
			r.Prepare = func(ctx context.Context, n int) error {
				if s.rounds >= 2 { // those of the warm-up
					s.d = time.Millisecond
				}
				return prepare(ctx, n)
			}
		})
		table, err := Interleave(t.Context(), Cell{}, []Way{way}, 6, 200*time.Millisecond)
		assert.Must(t, err)
		if last := table.Rounds[5][0]; last.Took < 190*time.Millisecond || last.Took > 210*time.Millisecond {
			t.Errorf("the last round took %v with %d operations", last.Took, last.Ops)
		}
	})
}

func TestInterleaveCountsBatchesAndFixedRounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{d: time.Millisecond}
		var log []string
		way := s.way("batch", &log, func(r *Running) { r.Batch = 16 })
		all := 0
		whole := Way{Name: "whole", Setup: func(context.Context, Cell) (*Running, error) {
			return &Running{Round: func(_ context.Context, n int) error {
				time.Sleep(time.Duration(n) * time.Millisecond)
				all += n
				return nil
			}}, nil
		}}
		table, err := Interleave(t.Context(), Cell{Ops: 100}, []Way{way, whole}, 2, time.Second)
		assert.Must(t, err)
		slices.Sort(s.seen)
		if !slices.Equal(s.seen, []int{0, 16, 32, 48, 64, 80}) || table.Rounds[0][0].Ops != 96 {
			t.Error(s.seen, table.Rounds[0][0].Ops)
		}
		if all != 300 || table.Rounds[1][1].Ops != 100 || table.Rounds[1][1].Took != 100*time.Millisecond {
			t.Error(all, table.Rounds[1][1])
		}
	})
}

func TestInterleaveReturnsTheFirstError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sick, well := &sleeper{d: time.Millisecond, err: errors.New("no more")}, &sleeper{d: time.Millisecond}
		var log []string
		_, err := Interleave(t.Context(), Cell{Name: "c", Callers: 3}, []Way{well.way("well", &log), sick.way("sick", &log)}, 1, time.Second)
		if !errors.Is(err, sick.err) || !strings.Contains(err.Error(), "c: sick: operation") {
			t.Error(err)
		}
		if well.closed != 1 || sick.closed != 1 {
			t.Error("a way was not closed")
		}
	})
}
