package relaying

import (
	"context"
	"fmt"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/measure"
)

// growth measures a claim, a settlement and a commit with increasing numbers of pending events. The backlogs exist at the
// same time and alternate.
func growth(ctx context.Context, env suite.Env, b *bed, report *suite.Report) error {
	var backlogs []*backlog
	for size := leastBacklog; size <= max(env.Pending, leastBacklog); size *= 10 {
		env.Log("%d pending", size)
		l, err := newBacklog(ctx, b, size)
		if err != nil {
			return err
		}
		backlogs = append(backlogs, l)
	}
	grid := suite.Grid{Caption: "Server µs per event by the number of pending events, and the ratio to the first column.", Head: []string{"script"}}
	plot := suite.Plot{Name: "relay-growth", Title: "Server CPU time per event, relative to 10,000 pending events", XLabel: "pending", YLabel: "×"}
	for _, l := range backlogs {
		grid.Head, plot.X = append(grid.Head, suite.Number(float64(l.size))), append(plot.X, suite.Number(float64(l.size)))
	}
	for _, step := range []struct {
		name string
		way  func(*backlog) *measure.Running
	}{
		{"commit of one event", (*backlog).commits},
		{"claim of 100", (*backlog).claims},
		{"settle of 100", (*backlog).settles},
	} {
		env.Log("growth: %s", step.name)
		var ways []measure.Way
		for _, l := range backlogs {
			ways = append(ways, measure.Way{Name: l.name(), Setup: func(context.Context, measure.Cell) (*measure.Running, error) {
				return step.way(l), nil
			}})
		}
		cell := measure.Cell{Name: "growth: " + step.name, Ops: growthOps}
		table, err := measure.Interleave(ctx, cell, ways, env.Rounds, env.Per)
		if err != nil {
			return err
		}
		report.Measured = append(report.Measured, table)
		row, series := []string{step.name}, suite.Series{Name: step.name}
		for _, l := range backlogs {
			value, err := table.Value(l.name(), measure.ServerCPUs)
			if err != nil {
				return err
			}
			ratio, err := table.Ratio(l.name(), backlogs[0].name(), measure.ServerCPUs)
			if err != nil {
				return err
			}
			row, series.Y = append(row, suite.Number(value.Median)+" · "+suite.Spread(ratio)), append(series.Y, ratio)
		}
		grid.Rows, plot.Series = append(grid.Rows, row), append(plot.Series, series)
	}
	report.Grids, report.Plots = append(report.Grids, grid), append(report.Plots, plot)
	return nil
}

const (
	leastBacklog = 10_000

	growthOps   = 2000 // events per round, few compared with the smallest backlog
	growthBatch = 100
)

// backlog is a shard with a fixed number of pending events.
type backlog struct {
	*bed
	size    int
	tr      *luatx.Transactor
	scripts *shard.Scripts
	shard   shard.Shard
	next    int // number of the next event
	held    []shard.Claim
}

func newBacklog(ctx context.Context, b *bed, size int) (*backlog, error) {
	tr, err := transactor(b.client, luatx.Partitions(1), quiet, func(c *luatx.Config) { c.Namespace = fmt.Sprint("bench-", size) })
	if err != nil {
		return nil, err
	}
	l := &backlog{bed: b, size: size, tr: tr, scripts: link.Of(tr).Scripts, shard: link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[0])}
	return l, l.refill(ctx)
}

func (l *backlog) name() string { return fmt.Sprint(l.size, " pending") }

// refill restores the size of the backlog, except for the events of a round.
func (l *backlog) refill(ctx context.Context) error {
	waiting, err := pending(ctx, l.tr)
	if n := l.size - int(waiting); err == nil && n > 0 {
		err = fill(ctx, l.tr, []string{"a"}, event, l.next, n)
		l.next += n
	}
	return err
}

// commits measures commits that add events.
func (l *backlog) commits() *measure.Running {
	first := 0
	return &measure.Running{
		Prepare: func(ctx context.Context, n int) error {
			first = l.next
			l.next += n
			return nil
		},
		Op: func(ctx context.Context, _, i int) error {
			e, err := event(first + i)
			if err != nil {
				return err
			}
			_, err = l.tr.Transact(ctx, "a", func(tx *luatx.Tx) error { return tx.Emit(e) })
			return err
		},
		CPU: measure.ServerCPU(l.client),
	}
}

// claims measures claims of events. Between rounds they are settled and replaced.
func (l *backlog) claims() *measure.Running {
	return &measure.Running{
		Prepare: func(ctx context.Context, _ int) error {
			for len(l.held) > 0 {
				if err := l.settle(ctx); err != nil {
					return err
				}
			}
			return l.refill(ctx)
		},
		Op:    func(ctx context.Context, _, _ int) error { return l.claim(ctx) },
		Batch: growthBatch,
		CPU:   measure.ServerCPU(l.client),
	}
}

// settles measures the settlement of events that are claimed between rounds.
func (l *backlog) settles() *measure.Running {
	return &measure.Running{
		Prepare: func(ctx context.Context, n int) error {
			if err := l.refill(ctx); err != nil {
				return err
			}
			for len(l.held) < n/growthBatch {
				if err := l.claim(ctx); err != nil {
					return err
				}
			}
			return nil
		},
		Op:    func(ctx context.Context, _, _ int) error { return l.settle(ctx) },
		Batch: growthBatch,
		CPU:   measure.ServerCPU(l.client),
	}
}

func (l *backlog) claim(ctx context.Context) error {
	claim, err := l.scripts.Claim(ctx, l.shard, shard.Claiming{Limit: growthBatch, Lease: time.Hour, Attempts: 10})
	if err == nil && len(claim.Events) != growthBatch {
		err = fmt.Errorf("%d events were claimed, want %d", len(claim.Events), growthBatch)
	}
	l.held = append(l.held, claim)
	return err
}

func (l *backlog) settle(ctx context.Context) error {
	claim := l.held[0]
	l.held = l.held[1:]
	batch := make([]shard.Settlement, len(claim.Events))
	for i, e := range claim.Events {
		batch[i] = shard.Settlement{ID: e.ID, What: "sent", Lease: claim.Lease, Body: e.Body}
	}
	done, err := l.scripts.Settle(ctx, l.shard, shard.Settling{Attempts: 10, Base: time.Second, Cap: time.Minute, Retention: time.Hour}, batch)
	for _, what := range done.Done {
		if what != "sent" {
			return fmt.Errorf("an event was settled with the outcome %s", what)
		}
	}
	return err
}
