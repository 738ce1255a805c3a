// Package instructions counts the instructions that a server executes for one transaction and for one published event.
// Unlike times, they do not depend on the load of the machine.
package instructions

import (
	"context"
	"errors"
	"fmt"

	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/internal/test/measure/ways"
)

// Group returns the group of these measurements.
func Group() suite.Group { return suite.Group{Name: "instructions", Run: run} }

const (
	warmUp  = 2048 // enough for the plan to be compiled
	counted = 2048 // transactions or events
	payload = 300  // size of an event's body in bytes
)

// A row is one counted operation. Its work repeats the operation n times.
type row struct {
	figure, name string
	begin        func(ctx context.Context, c *counter) (work, error)
}

type work struct {
	prepare func(ctx context.Context, n int) error
	do      func(ctx context.Context, n int) error
}

var rows = []row{
	{"instructions_handwritten_k", "handwritten script", commits(ways.Handwritten)},
	{"instructions_alone_k", "luatx, alone in its script", commits(ways.Luatx)},
	{"instructions_batch16_k", "luatx, in batches of 16", commits(ways.Batch)},
	{"instructions_batch64_k", "luatx, in batches of 64", commits(ways.Batch64)},
	{"instructions_general_alone_k", "luatx, alone in the general script", commits(ways.General)},
	{"instructions_general_batch16_k", "luatx, in batches of 16 in the general script", commits(ways.General16)},
	{"instructions_relay_k", "luatx relay, per event", relays(false)},
	{"instructions_relay_given_k", "luatx relay, per event with an id that the caller set", relays(true)},
}

const intro = `callgrind counts the instructions that the server executes in user space for one transaction or event, in thousands. The
transaction is the same as in the section Commit.`

func run(ctx context.Context, env suite.Env) (report suite.Report, err error) {
	c, err := newCounter(ctx)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	report = suite.Report{Title: "Instructions", Intro: intro, Figures: map[string]measure.Spread{}}
	grid := suite.Grid{Caption: "One caller on one server.", Head: []string{"way", "thousand instructions"}}
	for _, r := range rows {
		if !env.Wanted(r.name) {
			continue
		}
		env.Log("%s", r.name)
		each, err := r.count(ctx, c, counted)
		if err != nil {
			return report, fmt.Errorf("%s: %w", r.name, err)
		}
		report.Figures[r.figure] = measure.Spread{Median: each, Low: each, High: each}
		grid.Rows = append(grid.Rows, []string{r.name, suite.Number(each)})
	}
	report.Grids = []suite.Grid{grid}
	return report, nil
}

// count returns the average number of instructions per operation, in thousands, over n operations.
func (r row) count(ctx context.Context, c *counter, n int) (float64, error) {
	if err := c.client.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	w, err := r.begin(ctx, c)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(w.prepare(ctx, warmUp), w.do(ctx, warmUp), w.prepare(ctx, n)); err != nil {
		return 0, err
	}
	all, err := c.count(ctx, func() error { return w.do(ctx, n) })
	return float64(all) / float64(n) / 1000, err
}

// commits runs the transactions of a way one after another.
func commits(way string) func(context.Context, *counter) (work, error) {
	return func(ctx context.Context, c *counter) (work, error) {
		running, err := ways.Commit(c.client, way)[0].Setup(ctx, measure.Cell{Payload: payload, Tags: 1, Prefix: "bench"})
		if err != nil {
			return work{}, err
		}
		return work{running.Prepare, func(ctx context.Context, n int) error {
			for i := 0; i < n; i += max(running.Batch, 1) {
				if err := running.Op(ctx, 0, i); err != nil {
					return err
				}
			}
			return nil
		}}, nil
	}
}
