package relaying

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/relay"
)

// lineup is a setup for publishing events.
type lineup struct {
	name  string
	relay *relay.Config // of this process; nil if another process has the relay
	mute  bool          // commits send no wake-ups
	rates []int         // commits per second
}

const inlineWay, otherWay = "inline", "other process"

// Rates of commits.
const few, many = 200, 4000

func lineups() []lineup {
	both := []int{few, many}
	return []lineup{
		{inlineWay, &relay.Config{}, false, both},
		{otherWay, nil, false, both},
		{"cold, notified by a wake-up", &relay.Config{NoInline: true}, false, both},
		{"cold, found by a sweep every second", &relay.Config{NoInline: true, NoWakeUps: true}, true, []int{few}},
	}
}

const (
	latencyTags  = 16
	sweepEvery   = time.Second // for 16 tags, the default
	arrivesFor   = 10 * time.Second
	minimalRound = 300 * time.Millisecond
)

// reading is the result of one round of a lineup at a rate.
type reading struct {
	commit, publish []time.Duration // round trips of commits, and times from the reply to the publish, both sorted
	took            time.Duration
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// latency measures the rounds of all lineups in alternation.
func latency(ctx context.Context, env suite.Env, b *bed, report *suite.Report) error {
	type cell struct {
		lineup
		rate     int
		readings []reading
	}
	var cells []*cell
	for _, l := range lineups() {
		for _, rate := range l.rates {
			cells = append(cells, &cell{lineup: l, rate: rate})
		}
	}
	for round := range env.Rounds {
		env.Log("latency, round %d", round+1)
		for _, c := range rand.New(rand.NewPCG(2, uint64(round))).Perm(len(cells)) {
			c := cells[c]
			lasting := max(3*env.Per, minimalRound)
			if c.mute {
				lasting = max(lasting, sweepEvery)
			}
			got, err := c.measure(ctx, b, c.rate, lasting)
			if err != nil {
				return fmt.Errorf("%s at %d commits per second: %w", c.name, c.rate, err)
			}
			c.readings = append(c.readings, got)
		}
	}
	grid := suite.Grid{
		Caption: "Time from the reply to a commit until its event is published, and the round trip of the commit, in ms. Every transaction has one event, on one of 16 tags.",
		Head:    []string{"way", "commits per second", "p50", "p99", "commit p50", "p50 × commit"},
	}
	worst := func(name string, over []float64) {
		if s := measure.Over(over); s.Median >= report.Figures[name].Median {
			report.Figures[name] = s
		}
	}
	for _, c := range cells {
		var p50, p99, commit, ratio []float64
		table := measure.Table{Cell: fmt.Sprintf("latency at %d per second", c.rate), Ways: []string{c.name, c.name + ": commit"}}
		for _, r := range c.readings {
			median := quantile(r.publish, .5)
			p50, p99 = append(p50, ms(median)), append(p99, ms(quantile(r.publish, .99)))
			commit = append(commit, ms(quantile(r.commit, .5)))
			ratio = append(ratio, float64(median)/float64(quantile(r.commit, .5)))
			table.Rounds = append(table.Rounds, []measure.Sample{r.sample(r.publish), r.sample(r.commit)})
		}
		report.Measured = append(report.Measured, table)
		grid.Rows = append(grid.Rows, []string{
			c.name, suite.Number(float64(c.rate)), suite.Spread(measure.Over(p50)), suite.Spread(measure.Over(p99)),
			suite.Number(measure.Over(commit).Median), suite.Spread(measure.Over(ratio)),
		})
		switch c.name { // the worse rate counts
		case inlineWay:
			worst("inline_p50_vs_commit", ratio)
		case otherWay:
			worst("other_process_p99_ms", p99)
		}
	}
	report.Grids = append(report.Grids, grid)
	return nil
}

func (r reading) sample(times []time.Duration) measure.Sample {
	return measure.Sample{Ops: len(times), Took: r.took, P50: quantile(times, .5), P99: quantile(times, .99)}
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// measure commits at a rate for some time, and waits until all events are published.
func (l lineup) measure(ctx context.Context, b *bed, rate int, lasting time.Duration) (got reading, err error) {
	if err := b.client.FlushAll(ctx).Err(); err != nil {
		return got, err
	}
	keyspace := luatx.Partitions(latencyTags)
	tr, err := transactor(b.client, keyspace, func(c *luatx.Config) { c.NoWakeUps = l.mute })
	if err != nil {
		return got, err
	}
	times := newTimes(max(int(lasting.Seconds()*float64(rate)), 10))
	stop, err := l.start(ctx, b, tr, times)
	if err != nil {
		return got, err
	}
	defer func() { err = cmp.Or(err, stop()) }()
	if !l.mute {
		if err := heard(ctx, b); err != nil {
			return got, err
		}
	}
	begun := time.Now()
	if err := times.commit(ctx, tr, aggregates(keyspace, latencyTags), rate); err != nil {
		return got, err
	}
	if err := times.wait(ctx); err != nil {
		return got, err
	}
	got = times.reading()
	got.took = time.Since(begun)
	return got, nil
}

// start starts the relay, in this or another process.
func (l lineup) start(ctx context.Context, b *bed, tr *luatx.Transactor, times *times) (stop func() error, err error) {
	if l.relay == nil {
		return startChild(ctx, b.server.Addr(), times.published)
	}
	cfg := *l.relay
	cfg.Logger = tr.Config().Logger
	r, err := relay.New(tr, noting(times.published), cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = func() error { cancel(); return <-ended }
	for !l.relay.NoInline && link.Of(tr).Relay() == nil {
		select {
		case err := <-ended:
			cancel()
			return nil, err
		case <-time.After(time.Millisecond):
		}
	}
	return stop, nil
}

// heard waits until a relay has subscribed to wake-ups.
func heard(ctx context.Context, b *bed) error {
	ctx, cancel := context.WithTimeout(ctx, arrivesFor)
	defer cancel()
	for {
		sharded := b.client.PubSubShardChannels(ctx, "*") // older servers have none
		plain, err := b.client.PubSubChannels(ctx, "*").Result()
		if err != nil {
			return err
		}
		if len(sharded.Val())+len(plain) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no relay subscribes to wake-ups: %w", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// times holds the times of each event by its number, in ns since 1970. All processes of a machine share one clock.
type times struct {
	replies, publishes []atomic.Int64
	trips              []time.Duration
	missing            atomic.Int64
	all                chan struct{}
}

func newTimes(n int) *times {
	t := &times{
		replies: make([]atomic.Int64, n), publishes: make([]atomic.Int64, n), trips: make([]time.Duration, n), all: make(chan struct{}),
	}
	t.missing.Store(int64(n))
	return t
}

// published records when an event was first published.
func (t *times) published(i int, at int64) {
	if i >= 0 && i < len(t.publishes) && t.publishes[i].CompareAndSwap(0, at) && t.missing.Add(-1) == 0 {
		close(t.all)
	}
}

// every is the interval at which each caller commits. A shorter one is not accurate.
const every = 10 * time.Millisecond

// commit commits all events at about the given rate, with as many callers as necessary.
func (t *times) commit(ctx context.Context, tr *luatx.Transactor, aggregates []string, rate int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	callers := max(int(float64(rate)*every.Seconds()), 1)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			select { // callers start at different times
			case <-ctx.Done():
			case <-time.After(time.Duration(caller) * every / time.Duration(callers)):
			}
			tick := time.NewTicker(every)
			defer tick.Stop()
			for i := caller; i < len(t.trips) && ctx.Err() == nil; i += callers {
				if err := t.transact(ctx, tr, aggregates[i%len(aggregates)], i); err != nil {
					cancel(err)
				}
				<-tick.C
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (t *times) transact(ctx context.Context, tr *luatx.Transactor, aggregate string, i int) error {
	e, err := event(i)
	if err != nil {
		return err
	}
	begun := time.Now()
	_, err = tr.Transact(ctx, aggregate, func(tx *luatx.Tx) error {
		hash, err := tx.Key("hash")
		if err != nil {
			return err
		}
		counter, err := tx.Key("counter")
		if err != nil {
			return err
		}
		pipe := tx.Pipeline()
		pipe.HSet(ctx, hash, "a", 1, "b", 2, "c", 3)
		pipe.Incr(ctx, counter)
		return tx.Emit(e)
	})
	replied := time.Now()
	t.trips[i] = replied.Sub(begun)
	t.replies[i].Store(replied.UnixNano())
	return err
}

func (t *times) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, arrivesFor)
	defer cancel()
	select {
	case <-t.all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d events were not published: %w", t.missing.Load(), len(t.trips), ctx.Err())
	}
}

// reading sorts the recorded times. If an event was published before its committer had read the clock, its time is 0.
func (t *times) reading() reading {
	r := reading{commit: slices.Sorted(slices.Values(t.trips))}
	for i := range t.publishes {
		r.publish = append(r.publish, time.Duration(max(0, t.publishes[i].Load()-t.replies[i].Load())))
	}
	slices.Sort(r.publish)
	return r
}
