package commit

import (
	"fmt"
	"maps"
	"slices"

	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/internal/test/measure/ways"
)

// results are the measurements, by the cells' names.
type results struct {
	tables map[string]measure.Table
	allocs float64 // 0 or negative if not measured
}

// figures lists the ratios that have a goal.
var figures = []struct {
	name, cell, way, base string
	metric                measure.Metric
}{
	{"commit_c1_vs_three_step", "callers 1", ways.Luatx, ways.ThreeStep, measure.Throughput},
	{"commit_c8_vs_three_step", "callers 8", ways.Luatx, ways.ThreeStep, measure.Throughput},
	{"commit_rtt1ms_vs_three_step", "round trip 1 ms", ways.Luatx, ways.ThreeStep, measure.Throughput},
	{"commit_c64_vs_three_step", "base", ways.Luatx, ways.ThreeStep, measure.Throughput},
	{"server_cpu_c64_vs_three_step", "base", ways.Luatx, ways.ThreeStep, measure.ServerCPUs},
	{"server_cpu_unbatched_vs_three_step", "base", ways.Unbatched, ways.ThreeStep, measure.ServerCPUs},
	{"server_cpu_unbatched_vs_handwritten", "base", ways.Unbatched, ways.Handwritten, measure.ServerCPUs},
	{"commit_10kb_vs_three_step", "payload 10000", ways.Luatx, ways.ThreeStep, measure.Throughput},
	{"server_cpu_10kb_vs_three_step", "payload 10000", ways.Luatx, ways.ThreeStep, measure.ServerCPUs},
	{"commit_100kb_vs_three_step", "payload 100000", ways.Luatx, ways.ThreeStep, measure.Throughput},
	{"server_cpu_100kb_vs_three_step", "payload 100000", ways.Luatx, ways.ThreeStep, measure.ServerCPUs},
	{"server_cpu_3masters_vs_one", spread, string(masters), string(plain), measure.ServerCPUs},
}

const intro = `Each way commits the same transaction. It checks that a message is new and remembers its id for 24 hours, sets
three fields of a hash, increments a counter, adds an event where a relay finds it, and acknowledges the message. The messages are
pending in a stream before a round begins.

- *pipeline mode* sends SET NX, then MULTI … EXEC, then XACK. It loses the message if the process dies after the first step, and
  applies the message twice if the reply to the second step is lost.
- *plain commands* sends the same commands in one pipeline without atomicity. It shows the limit.
- *handwritten script* is a script for this one transaction. It has no undo and no fence.
- *luatx* acknowledges in the commit, lets concurrent callers share a script, and keeps the event in the outbox. The rows below it
  change one of these, or add a guarded read or a command that is undone by a dump.`

func (r results) report(all []axis) (suite.Report, error) {
	report := suite.Report{Title: "Commit", Intro: intro, Figures: map[string]measure.Spread{}}
	for _, name := range slices.Sorted(maps.Keys(r.tables)) {
		report.Measured = append(report.Measured, r.tables[name])
	}
	for _, f := range figures {
		table, ok := r.tables[f.cell]
		if !ok {
			continue
		}
		var err error
		if report.Figures[f.name], err = table.Ratio(f.way, f.base, f.metric); err != nil {
			return report, err
		}
	}
	if r.allocs > 0 {
		report.Figures["allocs_over_goredis"] = measure.Spread{Median: r.allocs, Low: r.allocs, High: r.allocs}
	}
	if table, ok := r.tables["base"]; ok {
		report.Grids = append(report.Grids, baseGrid(table))
	}
	for _, a := range all {
		a.cells = slices.DeleteFunc(a.cells, func(c cell) bool { _, ok := r.tables[c.Name]; return !ok })
		if len(a.cells) == 0 || len(a.cells) == 1 && a.cells[0].Name == "base" { // it has its own table
			continue
		}
		report.Grids = append(report.Grids, r.axisGrid(a))
		if len(a.cells) > 1 {
			report.Plots = append(report.Plots, r.plot(a, "throughput", measure.Throughput), r.plot(a, "server-cpu", measure.ServerCPUs))
		}
	}
	if table, ok := r.tables[spread]; ok {
		report.Grids = append(report.Grids, spreadGrid(table))
	}
	if table, ok := r.tables[growingMasters]; ok {
		report.Grids = append(report.Grids, growthGrid(table,
			"luatx in batches of 16, with 8 concurrent batches on 48 tags. Every master is a process, and all of them share the cores of the machine.", "masters"))
	}
	if table, ok := r.tables[growingShards]; ok {
		report.Grids = append(report.Grids, growthGrid(table, "luatx in batches of 16, with 8 concurrent batches, on one server with the given number of shards.", "shards"))
	}
	return report, nil
}

// to returns the ratio of a way to pipeline mode as text, or "" if the way was not measured.
func to(table measure.Table, way string, metric measure.Metric) string {
	ratio, err := table.Ratio(way, ways.ThreeStep, metric)
	if err != nil {
		return ""
	}
	return suite.Spread(ratio)
}

// value returns a median as text.
func value(table measure.Table, way string, metric measure.Metric) string {
	v, err := table.Value(way, metric)
	if err != nil {
		return ""
	}
	return suite.Number(v.Median)
}

// baseGrid returns all measurements of the base cell.
func baseGrid(table measure.Table) suite.Grid {
	grid := suite.Grid{
		Caption: "64 callers on one server, with events of 300 bytes. × is the ratio to pipeline mode. CPU times and allocations are per transaction.",
		Head:    []string{"way", "per second", "throughput ×", "server CPU ×", "server µs", "client µs", "allocations", "p50 ms", "p99 ms"},
	}
	for _, way := range table.Ways {
		grid.Rows = append(grid.Rows, []string{
			way, value(table, way, measure.Throughput), to(table, way, measure.Throughput), to(table, way, measure.ServerCPUs),
			value(table, way, measure.ServerCPUs), value(table, way, measure.ClientCPUs), value(table, way, measure.Allocs),
			value(table, way, measure.P50), value(table, way, measure.P99),
		})
	}
	return grid
}

// axisGrid returns throughput and server CPU of each way at each point, and the absolute numbers of the baseline.
func (r results) axisGrid(a axis) suite.Grid {
	grid := suite.Grid{Caption: a.caption + " Each cell has two ratios to pipeline mode: throughput · server CPU time per transaction.", Head: []string{"way"}}
	for _, c := range a.cells {
		grid.Head = append(grid.Head, a.label+" "+c.label)
	}
	for _, way := range a.ways {
		row := []string{way}
		for _, c := range a.cells {
			row = append(row, r.point(r.tables[c.Name], way))
		}
		grid.Rows = append(grid.Rows, row)
	}
	return grid
}

func (results) point(table measure.Table, way string) string {
	if way == ways.ThreeStep {
		return fmt.Sprintf("%s per second · %s µs", value(table, way, measure.Throughput), value(table, way, measure.ServerCPUs))
	}
	throughput, cpu := to(table, way, measure.Throughput), to(table, way, measure.ServerCPUs)
	if throughput == "" {
		return ""
	}
	return throughput + " · " + cpu
}

func (r results) plot(a axis, kind string, metric measure.Metric) suite.Plot {
	p := suite.Plot{
		Name: "commit-" + a.name + "-" + kind, Title: "Commit: " + kind + " by " + a.label + ", relative to pipeline mode",
		XLabel: a.label, YLabel: "× pipeline mode", LogY: kind == "throughput",
	}
	for _, c := range a.cells {
		p.X = append(p.X, c.label)
	}
	for _, way := range mainWays {
		s := suite.Series{Name: way}
		for _, c := range a.cells {
			ratio, _ := r.tables[c.Name].Ratio(way, ways.ThreeStep, metric) // zero values are not drawn
			s.Y = append(s.Y, ratio)
		}
		p.Series = append(p.Series, s)
	}
	return p
}

// spreadGrid compares one master with three.
func spreadGrid(table measure.Table) suite.Grid {
	grid := suite.Grid{
		Caption: "luatx with 64 callers on 16 tags: one server, and three masters that share the same cores.",
		Head:    []string{"", "per second", "server µs per transaction", "throughput × one server", "server CPU × one server"},
	}
	for _, way := range table.Ways {
		row := []string{way, value(table, way, measure.Throughput), value(table, way, measure.ServerCPUs)}
		for _, metric := range []measure.Metric{measure.Throughput, measure.ServerCPUs} {
			ratio, err := table.Ratio(way, string(plain), metric)
			if err != nil {
				continue
			}
			row = append(row, suite.Spread(ratio))
		}
		grid.Rows = append(grid.Rows, row)
	}
	return grid
}
