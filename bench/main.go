// Command bench compares luatx with alternatives in one run, as ratios, and writes the results into docs/measurements.md.
// Run it in its directory. go run . --help lists the flags.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/luatx/luatx/bench/internal/relaying"
	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/internal/test/redistest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	logging.Disable()            // messages about connections to stopped servers
	if was, err := relaying.Child(ctx); was {
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench: relay:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(bench(ctx, groups(), os.Args[1:], os.Stdout, os.Stderr))
}

// options are the flags.
type options struct {
	short, json bool
	only        *regexp.Regexp
	rounds      int
	pending     int
	per         time.Duration
	out         string
}

// bench measures the groups and returns the exit status.
func bench(ctx context.Context, groups []suite.Group, args []string, out, progress io.Writer) int {
	o, err := parse(args, progress)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	server, err := redistest.Find()
	if err != nil {
		fmt.Fprintln(progress, "bench:", err)
		return 2
	}
	results := results{Machine: suite.Machine(server.Version), Short: o.short, Rounds: o.rounds, Figures: map[string]float64{}, Spreads: map[string]measure.Spread{}}
	status := 0
	for _, g := range groups {
		if !o.wants(g.Name) {
			continue
		}
		if err := o.run(ctx, g, &results, out, progress); err != nil {
			fmt.Fprintf(progress, "bench: %s: %v\n", g.Name, err)
			status = 1
		}
		if ctx.Err() != nil {
			return 130
		}
	}
	if o.json {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(results); err != nil {
			fmt.Fprintln(progress, "bench:", err)
			return 1
		}
	}
	return status
}

func parse(args []string, usage io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(usage)
	only := ""
	flags.BoolVar(&o.short, "short", false, "measure only the most important figures, within 3 minutes, and do not write docs")
	flags.BoolVar(&o.json, "json", false, "print JSON instead of Markdown")
	flags.StringVar(&only, "only", "", "measure only the groups, or group/cell, that match the `regexp`; defaults to all")
	flags.IntVar(&o.rounds, "rounds", 0, "number of interleaved rounds; defaults to 5, or 3 with --short")
	flags.IntVar(&o.pending, "pending", 0, "number of `events` in the largest backlog; defaults to 1,000,000, or 100,000 with --short; 10,000,000 events need 7 GB")
	flags.DurationVar(&o.per, "per", 0, "approximate `duration` of one round of a way; defaults to 600ms, or 150ms with --short")
	flags.StringVar(&o.out, "out", "", "`directory` of measurements.md, whose sections are replaced; - writes no file; defaults to ../docs, or to - with --short or --only")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.only, err = regexp.Compile(only); err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected arguments %q", flags.Args())
	}
	if err != nil {
		fmt.Fprintln(usage, "bench:", err)
		return o, err
	}
	rounds, per, pending := 5, 600*time.Millisecond, 1_000_000
	if o.short {
		rounds, per, pending = 3, 150*time.Millisecond, 100_000
	}
	o.rounds, o.per, o.pending = cmp.Or(o.rounds, rounds), cmp.Or(o.per, per), cmp.Or(o.pending, pending)
	switch {
	case o.out == "-" || o.out == "" && (o.short || only != ""):
		o.out = ""
	case o.out == "":
		o.out = "../docs"
	}
	return o, nil
}

// wants reports whether to measure a group or a part of it.
func (o options) wants(group string) bool {
	name, _, _ := strings.Cut(o.only.String(), "/")
	part, err := regexp.Compile(name)
	return err != nil || part.MatchString(group)
}

func (o options) run(ctx context.Context, g suite.Group, results *results, out, progress io.Writer) error {
	start := time.Now()
	report, err := g.Run(ctx, suite.Env{
		Short: o.short, Rounds: o.rounds, Per: o.per, Pending: o.pending,
		Wanted: func(cell string) bool {
			return !strings.Contains(o.only.String(), "/") || o.only.MatchString(g.Name+"/"+cell)
		},
		Log: func(format string, args ...any) {
			fmt.Fprintf(progress, "%7.1fs %s: %s\n", time.Since(start).Seconds(), g.Name, fmt.Sprintf(format, args...))
		},
	})
	if skipped, ok := errors.AsType[suite.SkipError](err); ok {
		fmt.Fprintf(progress, "bench: %s: skipped: %s\n", g.Name, skipped)
		return nil
	}
	if err != nil {
		return err
	}
	results.add(g.Name, report)
	section := report.Markdown(fmt.Sprintf("%s.\n\nEvery figure is the median of %d interleaved rounds, followed by the lowest and the highest round in parentheses.", results.Machine, o.rounds))
	if !o.json {
		fmt.Fprintln(out, section)
	}
	if o.out == "" {
		return nil
	}
	return suite.Write(o.out, g.Name, section, report.Plots)
}

// results is the JSON output.
type results struct {
	Machine string                     `json:"machine"`
	Short   bool                       `json:"short"`
	Rounds  int                        `json:"rounds"`
	Figures map[string]float64         `json:"figures"`
	Missed  []string                   `json:"missed"`
	Spreads map[string]measure.Spread  `json:"spreads"`
	Groups  map[string][]measure.Table `json:"groups"`
}

func (r *results) add(group string, report suite.Report) {
	for _, goal := range suite.Goals() {
		if got, ok := report.Figures[goal.Figure]; ok && !goal.Met(got.Median) {
			r.Missed = append(r.Missed, goal.Figure)
		}
	}
	for name, figure := range report.Figures {
		r.Figures[name], r.Spreads[name] = figure.Median, figure
	}
	if r.Groups == nil {
		r.Groups = map[string][]measure.Table{}
	}
	r.Groups[group] = report.Measured
}
