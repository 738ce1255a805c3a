// Command torture injects every kind of fault around luatx, and checks the promised invariants.
//
// A bank and a shop run in several processes: callers, producers, handlers and relays. Nemeses, scheduled by a seed, kill
// and pause processes and servers, lose and repeat messages, fill memory and disk, move slots, fail over, and damage
// indexes. Every call is recorded, and the invariants are checked at the end.
//
//	go run . --for 10m --seed 7 --topology cluster --wait 1 --json
//
// The exit status is 0 if every invariant holds, 1 if one is violated, and 2 if the run is not valid.
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
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/luatx/luatx/torture/internal/nemesis"
	"github.com/luatx/luatx/torture/internal/report"
	"github.com/luatx/luatx/torture/internal/work"
)

// memberCommand is the command with which the program starts its own processes.
const memberCommand = "torture-member"

const (
	singleTopology  = "single"
	clusterTopology = "cluster"
)

const (
	statusFine = iota
	statusBroken
	statusVoid
)

// options are the options of a run.
type options struct {
	For      time.Duration
	Seed     uint64
	Topology string
	Wait     int
	Rate     float64
	Floor    float64
	Workers  int
	Relays   int
	Nemeses  []string
	NoClock  bool
	NoDisk   bool
	Keep     bool
	Dir      string
	Out      string
	JSON     bool
	FailFast bool
	Row      bool
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == memberCommand {
		os.Exit(work.Main(os.Stdin, os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

func command(ctx context.Context, args []string, out, errs io.Writer) int {
	o, err := parse(args, errs)
	if errors.Is(err, flag.ErrHelp) {
		return statusFine
	}
	if err != nil {
		fmt.Fprintln(errs, "torture:", err)
		return statusVoid
	}
	r, err := torture(ctx, o, errs)
	if err == nil {
		err = write(r, o, out)
	}
	switch {
	case err != nil:
		fmt.Fprintln(errs, "torture:", err)
		return statusVoid
	case !r.OK:
		if o.Row { // a row does not contain the violations
			r.Problems(errs)
		}
		return statusBroken
	case r.Void != "":
		return statusVoid
	}
	return statusFine
}

func parse(args []string, errs io.Writer) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("torture", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.DurationVar(&o.For, "for", time.Minute, "`duration` for which faults are inflicted")
	flags.Uint64Var(&o.Seed, "seed", 0, "seed of the fault schedule; 0 chooses one")
	flags.StringVar(&o.Topology, "topology", singleTopology, "`kind` of servers: single is one server with appendfsync always, cluster is three masters with a replica each")
	flags.IntVar(&o.Wait, "wait", 0, "number of `replicas` that commits and publishes wait for")
	flags.Float64Var(&o.Rate, "rate", 1500, "maximum number of calls and inputs per second")
	flags.Float64Var(&o.Floor, "floor", 50, "minimum number of commits per second; a slower run is void")
	flags.IntVar(&o.Workers, "workers", 3, "number of processes that make calls and handle inputs")
	flags.IntVar(&o.Relays, "relays", 2, "number of processes that publish events and repair indexes")
	nemeses := flags.String("nemeses", "", "comma-separated `prefixes` of the kinds of faults to inflict; the default is all of "+strings.Join(nemesis.Kinds(), " "))
	flags.BoolVar(&o.NoClock, "no-clock", false, "skip the clock fault, which needs a second build of the program")
	flags.BoolVar(&o.NoDisk, "no-disk", false, "skip the full-disk fault, and keep the server's files on the real disk")
	flags.BoolVar(&o.FailFast, "fail-fast", false, "stop at the first violation of an invariant")
	flags.BoolVar(&o.Keep, "keep", false, "keep histories and logs even if all invariants hold")
	flags.StringVar(&o.Dir, "dir", "", "`directory` for histories and logs; the default is the directory for temporary files")
	flags.StringVar(&o.Out, "out", "", "`directory` for report.json and report.html; it is created if necessary")
	flags.BoolVar(&o.Row, "row", false, "print the report as a row of the table in docs/reliability.md")
	flags.BoolVar(&o.JSON, "json", false, "print the report as JSON")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if *nemeses != "" {
		o.Nemeses = strings.Split(*nemeses, ",")
	}
	if o.Seed == 0 {
		o.Seed = uint64(rand.Uint32())
	}
	return o, o.validate()
}

func (o options) validate() error {
	known := func(begin string) bool {
		return slices.ContainsFunc(nemesis.Kinds(), func(kind string) bool { return strings.HasPrefix(kind, begin) })
	}
	switch {
	case o.Topology != singleTopology && o.Topology != clusterTopology:
		return fmt.Errorf("--topology %s: use single or cluster", o.Topology)
	case o.For < time.Second:
		return fmt.Errorf("--for %v: use at least a second", o.For)
	case o.Workers < 1 || o.Relays < 0:
		return fmt.Errorf("--workers %d, --relays %d: use at least one worker", o.Workers, o.Relays)
	case o.Rate <= 0:
		return fmt.Errorf("--rate %v: use a rate above 0", o.Rate)
	case o.Wait < 0 || o.Wait > 0 && o.Topology == singleTopology:
		return fmt.Errorf("--wait %d: use 0, or 1 with a cluster", o.Wait)
	}
	for _, begin := range o.Nemeses {
		if !known(begin) {
			return fmt.Errorf("--nemeses %s: use prefixes of %s", begin, strings.Join(nemesis.Kinds(), ", "))
		}
	}
	return nil
}

// write prints the report, and stores it if requested.
func write(r *report.Report, o options, out io.Writer) error {
	if o.Out != "" {
		if err := os.MkdirAll(o.Out, 0o755); err != nil {
			return err
		}
		for name, render := range map[string]func(io.Writer) error{"report.json": r.JSON, "report.html": r.HTML} {
			if err := writeFile(filepath.Join(o.Out, name), render); err != nil {
				return err
			}
		}
	}
	switch {
	case o.JSON:
		return r.JSON(out)
	case o.Row:
		return r.Row(out)
	}
	return r.Text(out)
}

func writeFile(name string, render func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(render(file), file.Close())
}
