// Package suite is what a group of measurements is asked for and what it answers with: numbers, tables and plots.
package suite

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/test/measure"
)

// Group is a set of measurements that belong together and make one section of the report.
type Group struct {
	// Name is what --only matches, such as "commit".
	Name string
	// Run measures. It starts the servers that it needs and ends them.
	Run func(ctx context.Context, env Env) (Report, error)
}

// Env says how thorough the measurements are to be.
type Env struct {
	// Short leaves out what takes long: the whole run ends within 3 minutes.
	Short bool
	// Rounds is the number of interleaved rounds, and Per about how long a way's round takes.
	Rounds int
	Per    time.Duration
	// Pending is the size of the largest backlog.
	Pending int
	// Wanted tells whether a cell of the group is to be measured, by its name: see --only.
	Wanted func(cell string) bool
	// Log tells the one who waits what is being measured.
	Log func(format string, args ...any)
}

// Report is a section of docs/performance.md, and its part of the JSON.
type Report struct {
	// Title and Intro begin the section; Intro is Markdown.
	Title, Intro string
	// Grids are its tables and Plots its pictures.
	Grids []Grid
	Plots []Plot
	// Notes is Markdown after them.
	Notes string
	// Figures are the numbers that the goals speak of, by their names: see Goals.
	Figures map[string]measure.Spread
	// Measured is every sample, for the JSON.
	Measured []measure.Table
}

// Grid is a table of text; its first column names the row.
type Grid struct {
	Caption string
	Head    []string
	Rows    [][]string
}

// Plot is a picture with one line for each of its series.
type Plot struct {
	// Name is that of the file, without .svg.
	Name string
	// Title and the axes' labels.
	Title, XLabel, YLabel string
	// X names the points of the X axis, which are equally far apart.
	X []string
	// LogY makes the Y axis logarithmic.
	LogY bool
	// Series are the lines.
	Series []Series
}

// Series is one line of a plot.
type Series struct {
	Name string
	// Y has a value for each X of the plot; one that is 0 was not measured.
	Y []measure.Spread
}

// SkipError reports that a group cannot be measured on this machine. Its text names the missing program.
type SkipError string

func (s SkipError) Error() string { return string(s) }
