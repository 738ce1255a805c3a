package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/internal/test/measure/ways"
)

// benchResult is the result of luatx bench, and its JSON.
type benchResult struct {
	Figures map[string]float64 `json:"figures"`  // ratios of medians of rounds, such as commit_c64_vs_three_step
	LeftOut map[string]string  `json:"left_out"` // the ways that the server rejected, with the reasons
	Cells   []measure.Table    `json:"cells"`    // every sample
}

func (r *benchResult) add(callers int, table measure.Table) {
	r.Cells = append(r.Cells, table)
	for _, f := range []struct {
		name, way, base string
		metric          measure.Metric
	}{
		{"commit_c%d_vs_three_step", ways.Luatx, ways.ThreeStep, measure.Throughput},
		{"server_cpu_c%d_vs_three_step", ways.Luatx, ways.ThreeStep, measure.ServerCPUs},
		{"server_cpu_c%d_unbatched_vs_handwritten", ways.Unbatched, ways.Handwritten, measure.ServerCPUs},
	} {
		if ratio, err := table.Ratio(f.way, f.base, f.metric); err == nil && ratio.Median > 0 { // otherwise it was not measured
			r.Figures[fmt.Sprintf(f.name, callers)] = ratio.Median
		}
	}
}

func (r *benchResult) write(out io.Writer, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	for _, table := range r.Cells {
		if err := writeBenchTable(out, table); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "\n× is relative to the pipeline mode: the median of the ratios within each round (lowest–highest). CPU is the CPU time of one transaction.")
	return nil
}

func writeBenchTable(out io.Writer, table measure.Table) error {
	tabs := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tabs, "\n%s\tper second\t×\t\tserver CPU ×\tserver µs\tclient µs\tp50 ms\tp99 ms\t\n", table.Cell)
	for _, way := range table.Ways {
		throughput, err := table.Ratio(way, ways.ThreeStep, measure.Throughput)
		if err != nil {
			return err
		}
		cpu, err := table.Ratio(way, ways.ThreeStep, measure.ServerCPUs)
		if err != nil {
			return err
		}
		fmt.Fprintf(tabs, "%s\t%.0f\t%.2f\t(%.2f–%.2f)\t%.2f\t", way, median(table, way, measure.Throughput), throughput.Median, throughput.Low, throughput.High, cpu.Median)
		for _, metric := range []measure.Metric{measure.ServerCPUs, measure.ClientCPUs, measure.P50, measure.P99} {
			fmt.Fprintf(tabs, "%.2f\t", median(table, way, metric))
		}
		fmt.Fprintln(tabs)
	}
	return tabs.Flush()
}

// median returns the median of a way in the table.
func median(table measure.Table, way string, metric measure.Metric) float64 {
	spread, _ := table.Value(way, metric)
	return spread.Median
}
