package relaying

import (
	"context"
	"fmt"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/relay"
)

const (
	// usualSweep is the time of a sweep of all 16,384 shards by default.
	usualSweep = time.Minute
	// quickSweep is the time of a sweep here. Its cost is converted to that of a usual one.
	quickSweep = 2 * time.Second
)

// sweep measures the idle server with and without a relay that sweeps every slot.
func sweep(ctx context.Context, env suite.Env, b *bed, report *suite.Report) error {
	env.Log("sweep of empty shards")
	tr, err := transactor(b.client, luatx.OwnTags(), quiet)
	if err != nil {
		return err
	}
	var cores, idle []float64
	table := measure.Table{Cell: "sweep", Ways: []string{"nothing", "relay"}}
	for range env.Rounds {
		nothing, err := b.used(ctx, func(context.Context) error { return nil })
		if err != nil {
			return err
		}
		sweeping, err := b.used(ctx, func(ctx context.Context) error {
			r, err := relay.New(tr, noting(func(int, int64) {}), relay.Config{
				NoInline: true, NoWakeUps: true, SweepInterval: quickSweep, Logger: tr.Config().Logger,
			})
			if err != nil {
				return err
			}
			return r.Run(ctx)
		})
		if err != nil {
			return err
		}
		idle = append(idle, 100*share(nothing))
		cores = append(cores, 100*max(0, share(sweeping)-share(nothing))*quickSweep.Seconds()/usualSweep.Seconds())
		table.Rounds = append(table.Rounds, []measure.Sample{nothing, sweeping})
	}
	report.Measured = append(report.Measured, table)
	report.Figures["sweep_core_percent"] = measure.Over(cores)
	report.Grids = append(report.Grids, suite.Grid{
		Caption: fmt.Sprintf("Share of a server core for a sweep of %d empty shards once a minute. Relays share the sweep, so their number does not matter. The measured relays sweep every %v. An idle server uses %s %%.",
			len(tr.Keyspace().Slots()), quickSweep, suite.Number(measure.Over(idle).Median)),
		Head: []string{"% of a core", "server ms per sweep"},
		Rows: [][]string{{suite.Spread(measure.Over(cores)), suite.Number(measure.Over(cores).Median / 100 * usualSweep.Seconds() * 1e3)}},
	})
	return nil
}

func share(s measure.Sample) float64 { return s.ServerCPU.Seconds() / s.Took.Seconds() }

// used measures the server for the time of a quick sweep while run runs.
func (b *bed) used(ctx context.Context, run func(context.Context) error) (s measure.Sample, err error) {
	cpu := measure.ServerCPU(b.client)
	before, err := cpu(ctx)
	if err != nil {
		return s, err
	}
	begun := time.Now()
	bounded, cancel := context.WithTimeout(ctx, quickSweep)
	defer cancel()
	if err := run(bounded); err != nil {
		return s, err
	}
	<-bounded.Done()
	if ctx.Err() != nil {
		return s, ctx.Err()
	}
	after, err := cpu(ctx)
	return measure.Sample{Ops: 1, Took: time.Since(begun), ServerCPU: after - before}, err
}
