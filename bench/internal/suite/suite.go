// Package suite defines groups of measurements and their results: numbers, tables and plots.
package suite

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/test/measure"
)

// Group is a set of measurements that make up one section of the report.
type Group struct {
	// Name is the name that --only matches, such as "commit".
	Name string
	// Run measures. It starts the servers that it needs and stops them.
	Run func(ctx context.Context, env Env) (Report, error)
}

// Env configures the measurements.
type Env struct {
	// Short leaves out long measurements, so that the whole run ends within 3 minutes.
	Short bool
	// Rounds is the number of interleaved rounds. Per is the approximate duration of a round of one way.
	Rounds int
	Per    time.Duration
	// Pending is the number of events of the largest backlog.
	Pending int
	// Wanted reports whether to measure a cell of the group, by its name. See --only.
	Wanted func(cell string) bool
	// Log reports the progress.
	Log func(format string, args ...any)
}

// Report is a section of docs/measurements.md and its part of the JSON.
type Report struct {
	// Title and Intro begin the section. Intro is Markdown.
	Title, Intro string
	// Grids are the tables of the section, and Plots its pictures.
	Grids []Grid
	Plots []Plot
	// Notes is the Markdown after them.
	Notes string
	// Figures are the numbers with goals, by name. See Goals.
	Figures map[string]measure.Spread
	// Measured contains every sample for the JSON.
	Measured []measure.Table
}

// Grid is a table of text. Its first column is the name of the row.
type Grid struct {
	Caption string
	Head    []string
	Rows    [][]string
}

// Plot is a picture with one line for each of its series.
type Plot struct {
	// Name is the file name without .svg.
	Name string
	// Title is the title; XLabel and YLabel are the labels of the axes.
	Title, XLabel, YLabel string
	// X names the points of the X axis, which are equidistant.
	X []string
	// LogY makes the Y axis logarithmic.
	LogY bool
	// Series are the lines.
	Series []Series
}

// Series is one line of a plot.
type Series struct {
	Name string
	// Y has a value for each X of the plot. A value of 0 means that it was not measured.
	Y []measure.Spread
}

// SkipError reports that a group cannot be measured on this machine. Its text names the missing program.
type SkipError string

func (s SkipError) Error() string { return string(s) }
