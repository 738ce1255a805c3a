package way

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/internal/test/redistest"
)

// comparison is a cell with its ways.
type comparison struct {
	name, title string
	ways        []measure.Way
	base        string               // baseline of the table's ratios
	figures     map[string][2]string // a way and its baseline
}

func comparisons() []comparison {
	return []comparison{
		{"consume", `Messages are consumed, committed and acknowledged. The events stay in the outbox. stack.Pipelined is pipeline mode in the same Router. "By hand" means without a Router.`, Consume(), ThreeStep, map[string][2]string{
			"consume_vs_three_step": {Batches, ThreeStep},
		}},
		{"whole way", "Messages are consumed and committed, and their events are published and settled, with 64 messages in flight.", Whole(), Asynq, map[string][2]string{
			"way_vs_asynq": {Inline, Asynq}, "way_vs_watermill": {Inline, Watermill},
		}},
	}
}

// Group measures messages from end to end.
func Group() suite.Group {
	return suite.Group{Name: "way", Run: run}
}

func run(ctx context.Context, env suite.Env) (suite.Report, error) {
	report := suite.Report{
		Title: "Messages from end to end",
		Intro: "Each way processes a backlog of messages to the end. For each message it checks an id that is kept for 24 hours, sets " +
			"three fields with HSET, runs INCR, adds an event of 300 bytes, and acknowledges the message. The handler of asynq " +
			"enqueues the next task. The router of Watermill publishes the messages that its handler returns, and deduplicates with " +
			"SET NX. The plain loop sends the same commands in pipelines without atomicity, so it shows the limit.",
		Figures: map[string]measure.Spread{},
	}
	for _, c := range comparisons() {
		if !env.Wanted(c.name) {
			continue
		}
		env.Log("way: %s", c.name)
		table, err := c.measure(ctx, env)
		if err != nil {
			return report, err
		}
		report.Measured = append(report.Measured, table)
		for figure, pair := range c.figures {
			if report.Figures[figure], err = table.Ratio(pair[0], pair[1], measure.Throughput); err != nil {
				return report, err
			}
		}
		grid, err := c.grid(table)
		if err != nil {
			return report, err
		}
		report.Grids = append(report.Grids, grid)
	}
	return report, nil
}

// measure runs the ways on a server of their own.
func (c comparison) measure(ctx context.Context, env suite.Env) (measure.Table, error) {
	server, err := redistest.Start(ctx)
	if err != nil {
		return measure.Table{}, err
	}
	defer func() { _ = server.Close() }()
	cell := measure.Cell{Name: c.name, Options: redis.UniversalOptions{Addrs: []string{server.Addr()}}}
	return measure.Interleave(ctx, cell, c.ways, env.Rounds, env.Per)
}

func (c comparison) grid(table measure.Table) (suite.Grid, error) {
	grid := suite.Grid{Caption: c.title, Head: []string{
		"way", "× " + c.base, "lowest to highest", "messages per second", "server µs", "client µs", "client allocations",
	}}
	for _, way := range table.Ways {
		times, err := table.Ratio(way, c.base, measure.Throughput)
		if err != nil {
			return grid, err
		}
		row := []string{way, fmt.Sprintf("%.2f", times.Median), fmt.Sprintf("%.2f to %.2f", times.Low, times.High)}
		for _, number := range []struct {
			of     measure.Metric
			format string
		}{{measure.Throughput, "%.0f"}, {measure.ServerCPUs, "%.1f"}, {measure.ClientCPUs, "%.1f"}, {measure.Allocs, "%.0f"}} {
			value, err := table.Value(way, number.of)
			if err != nil {
				return grid, err
			}
			row = append(row, fmt.Sprintf(number.format, value.Median))
		}
		grid.Rows = append(grid.Rows, row)
	}
	return grid, nil
}
