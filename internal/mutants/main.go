// Command mutants makes small wrong edits to the code, one at a time, and reports whether the tests notice. An edit that no
// test notices is a survivor: a test is missing there, or the edit changes nothing that a caller can observe.
//
//	go run ./internal/mutants -n 50 -seed 7         a random sample
//	go run ./internal/mutants -only internal/lua/settle.lua  every mutant of one file
//	go run ./internal/mutants -only promises        the edits of promises.txt
//
// The exit status is 1 if the score is below -floor beyond the sample's margin of error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
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
	root := flags.String("root", ".", "the module's `directory`")
	n := flags.Int("n", 50, "size of the sample; 0 runs all")
	seed := flags.Uint64("seed", 0, "seed of the sample; 0 chooses one")
	skip := flags.Int("skip", 0, "leave out the first `mutants` of the sample, which another run has tried")
	only := flags.String("only", "", "only files whose path begins with this `prefix`, go for all but Lua, or promises; a single file runs whole")
	floor := flags.Float64("floor", 0, "lowest `share` of killed mutants that passes")
	list := flags.Bool("list", false, "print the mutants and do not run them")
	servers := flags.String("servers", "", "`paths` of further redis-server programs, separated by commas, on which the nearest package tries surviving Lua mutants: for code that only some versions run")
	workers := flags.Int("p", 2, "mutants that are tried at a `time`")
	limit := flags.Duration("timeout", 3*time.Minute, "longest run of one test binary")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *seed == 0 {
		*seed = rand.Uint64N(1e6) + 1
	}
	mutants, err := choose(*root, *only)
	if err != nil {
		return err
	}
	if len(mutants) == 0 {
		return fmt.Errorf("no mutants in %q; use a file or directory of %s", *only, strings.Join(rooms(), ", "))
	}
	random := rand.New(rand.NewPCG(*seed, 0)) //nolint:gosec // a sample that can be repeated
	random.Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
	mutants = mutants[min(*skip, len(mutants)):]
	size := min(*n, len(mutants))
	if *n == 0 || *only == "promises" || strings.Contains(*only, ".") {
		size = len(mutants)
	}
	if *list {
		for _, m := range mutants[:size] {
			_, _ = fmt.Fprintln(out, m)
		}
		return nil
	}
	_, _ = fmt.Fprintf(out, "%d of %d mutants, seed %d\n", size, len(mutants), *seed)
	r, err := newRunner(*root, *limit)
	if err != nil {
		return err
	}
	defer r.close()
	if *servers != "" {
		r.servers = strings.Split(*servers, ",")
	}
	results, err := r.sample(ctx, mutants, size, *workers, func(result result) { _, _ = fmt.Fprintln(out, result) })
	if *only == "promises" && err == nil && len(results) < size {
		err = fmt.Errorf("%d edits of promises.txt do not compile; fix them", size-len(results))
	}
	if more := len(mutants) - r.tried; more > 0 {
		_, _ = fmt.Fprintf(out, "%d mutants are left: -seed %d -skip %d\n", more, *seed, *skip+r.tried)
	}
	return errors.Join(err, report(out, results, *floor))
}

// choose returns the mutants that only selects, without the equivalent ones.
func choose(root, only string) ([]mutant, error) {
	if only == "promises" {
		return promises(root)
	}
	all, err := generate(root, only)
	if err != nil {
		return nil, err
	}
	known, err := equivalents()
	if err != nil {
		return nil, err
	}
	kept := all[:0]
	for _, m := range all {
		if _, ok := known[m.key()]; !ok {
			kept = append(kept, m)
		}
	}
	return kept, nil
}
