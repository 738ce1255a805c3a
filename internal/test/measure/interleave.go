package measure

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Interleave sets up all ways. Each way warms up and counts the operations that take about per. Interleave then runs
// the given number of rounds. A round runs every way once, in an order that is shuffled for each round but is the same
// in every run. An error of a way ends everything.
func Interleave(ctx context.Context, cell Cell, ways []Way, rounds int, per time.Duration) (table Table, err error) {
	cell = cell.withDefaults()
	table = Table{Cell: cell.Name}
	var runs []*run
	defer func() {
		for _, r := range runs {
			if r.Close != nil {
				r.Close()
			}
		}
	}()
	for _, way := range ways {
		running, err := way.Setup(ctx, cell)
		if err != nil {
			return table, fmt.Errorf("%s: %s: %w", cell.Name, way.Name, err)
		}
		r := &run{Running: running, name: way.Name, callers: cell.Callers}
		r.Batch = max(r.Batch, 1)
		runs = append(runs, r)
		table.Ways = append(table.Ways, way.Name)
		if err := r.warmUp(ctx, cell.Ops, per); err != nil {
			return table, fmt.Errorf("%s: %s: %w", cell.Name, way.Name, err)
		}
	}
	for round := range rounds {
		samples := make([]Sample, len(runs))
		for _, w := range rand.New(rand.NewPCG(1, uint64(round))).Perm(len(runs)) {
			if samples[w], err = runs[w].round(ctx, runs[w].ops); err != nil {
				return table, fmt.Errorf("%s: %s: %w", cell.Name, runs[w].name, err)
			}
			if cell.Ops == 0 {
				runs[w].fit(samples[w], per)
			}
		}
		table.Rounds = append(table.Rounds, samples)
	}
	return table, nil
}

// run is a way on its way through a cell.
type run struct {
	*Running
	name    string
	callers int
	ops     int // of a round
}

// warmUp runs rounds of growing size until one is long enough to tell how many operations take the time given; the
// last one is as warm as those that count.
func (r *run) warmUp(ctx context.Context, ops int, per time.Duration) error {
	if ops > 0 {
		r.ops = ops
		_, err := r.round(ctx, ops)
		return err
	}
	for n := 4 * r.callers * r.Batch; ; n *= 4 {
		s, err := r.round(ctx, n)
		if err != nil {
			return err
		}
		if s.Took >= per/3 {
			r.ops = n
			r.fit(s, per)
			return nil
		}
	}
}

// fit makes the next round as long as it is to be: the last one may have been held up, and is not to be trusted alone.
func (r *run) fit(s Sample, per time.Duration) {
	want := int(float64(s.Ops) * per.Seconds() / max(s.Took.Seconds(), 1e-9))
	r.ops = max(min(max(want, r.ops/4), r.ops*4), r.callers*r.Batch)
}

func (r *run) round(ctx context.Context, n int) (s Sample, err error) {
	n = max(n/r.Batch, 1) * r.Batch
	if r.Prepare != nil {
		if err := r.Prepare(ctx, n); err != nil {
			return s, fmt.Errorf("prepare: %w", err)
		}
	}
	runtime.GC() // what the way before has left is not this one's to sweep
	server, err := r.cpu(ctx)
	if err != nil {
		return s, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	client, start := ClientCPU(), time.Now()
	var times histogram
	if r.Round != nil {
		err = r.Round(ctx, n)
	} else {
		err = r.calls(ctx, n, &times)
	}
	s = Sample{Ops: n, Took: time.Since(start), ClientCPU: ClientCPU() - client, P50: times.quantile(.5), P99: times.quantile(.99)}
	if err != nil {
		return s, err
	}
	runtime.ReadMemStats(&after)
	s.Allocs, s.Bytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	used, err := r.cpu(ctx)
	s.ServerCPU = used - server
	return s, err
}

func (r *run) cpu(ctx context.Context) (time.Duration, error) {
	if r.CPU == nil {
		return 0, nil
	}
	return r.CPU(ctx)
}

// calls lets all callers call Op until n operations are done, or one fails.
func (r *run) calls(ctx context.Context, n int, times *histogram) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	all := make([]histogram, r.callers)
	for worker := range r.callers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(int64(r.Batch))) - r.Batch
				if i >= n {
					return
				}
				start := time.Now()
				if err := r.Op(ctx, worker, i); err != nil {
					cancel(fmt.Errorf("operation %d: %w", i, err))
					return
				}
				all[worker].add(time.Since(start))
			}
		})
	}
	wg.Wait()
	for i := range all {
		times.merge(&all[i])
	}
	return context.Cause(ctx)
}
