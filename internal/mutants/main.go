// Command mutants breaks the code on purpose, one line of the table at a time, and looks whether the named test
// notices. A mutant that survives means that the tests do not hold what they say.
//
//	go run ./internal/mutants [-run regexp] [-list] [-j n] [-timeout d] [-v]
//
// It works on copies of the tree, with what is not committed. The exit status is 1 unless every mutant was killed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := command(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(out)
	pattern := flags.String("run", "", "only mutants whose name matches this `regexp`")
	list := flags.Bool("list", false, "list the mutants, and why their tests must notice")
	jobs := flags.Int("j", max(1, runtime.NumCPU()/2), "mutants at a time")
	timeout := flags.Duration("timeout", 2*time.Minute, "for one run of a test")
	verbose := flags.Bool("v", false, "show the output of every test that turned red")
	root := flags.String("root", ".", "the module's directory")
	if err := flags.Parse(args); err != nil {
		return err
	}
	name, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	var chosen []Mutant
	for _, m := range table() {
		if name.MatchString(m.Name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no mutant matches %q", *pattern)
	}
	if *list {
		return printList(out, chosen)
	}
	results, err := runAll(ctx, settings{root: *root, jobs: *jobs, timeout: *timeout}, chosen)
	if err != nil {
		return err
	}
	return report(out, results, *verbose)
}

func printList(out io.Writer, mutants []Mutant) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, m := range mutants {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s %s\t%s\n", m.Name, m.File, m.Package, m.Test, m.Why)
	}
	return w.Flush()
}

func report(out io.Writer, results []result, verbose bool) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	bad := 0
	for _, r := range results {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s %s\t%.1fs\n", r.outcome, r.Name, r.Package, r.Test, r.took.Seconds())
		if r.outcome != killed {
			bad++
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if r.outcome != killed || verbose {
			_, _ = fmt.Fprintf(out, "\n%s: %s\n  why: %s\n%s\n", r.Name, r.outcome, r.Why, r.detail)
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d mutants were not killed", bad, len(results))
	}
	return nil
}
