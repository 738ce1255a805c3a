package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
	"golang.org/x/term"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/cmd/luatx/internal/shop"
)

const demoUsage = `luatx demo sells the orders of a shop. Each message is an invoice: a handler books it on its customer
and returns an event a line; the events travel to the products, where a second handler takes the quantity off the
stock. Worker processes are killed while they work, and replies of Redis are lost on the way. In the end money and
stock are read back and compared with what the orders say.

The pipeline mode is the three-step way: SET NX for the inbox, MULTI … EXEC for the writes, XACK at the end. The
scripted mode is luatx: all of that in one script. The handlers are the same.

p50 and p99 are from the receipt of an invoice by a worker to its acknowledgement. The embedded server runs Lua in Go
and slowly; speeds are worth comparing on a real one:

    luatx demo --redis localhost:6379

There, the keys of the demo begin with a namespace of their own, and are taken away at the end.

The exit status is 0; 1 where the books of the scripted mode are not exact, or a run does not come to its end; 2 for
wrong flags, orders that cannot be read and a Redis that cannot be reached.

Flags:

`

// demo runs the subcommand and returns the exit status.
func demo(ctx context.Context, args []string, std standard) int {
	options, err := parseOptions(args, std)
	if errors.Is(err, flag.ErrHelp) {
		return statusFine
	}
	if err == nil {
		err = show(ctx, options, std)
	}
	var inexact inexactError
	switch code := status(ctx, err); {
	case err == nil || errors.As(err, &inexact): // the table says it
		return code
	case code == statusInterrupted:
		fmt.Fprintln(std.err, "luatx demo: interrupted")
		return code
	default:
		fmt.Fprintf(std.err, "luatx demo: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		return code
	}
}

// parseOptions reads the flags. What it does not like is a usageError.
func parseOptions(args []string, std standard) (shop.Options, error) {
	var options shop.Options
	var complaint bytes.Buffer
	flags := flag.NewFlagSet("luatx demo", flag.ContinueOnError)
	flags.SetOutput(&complaint)
	flags.Usage = func() {}
	options.Register(flags)
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(std.out, demoUsage)
		flags.SetOutput(std.out)
		flags.PrintDefaults()
		return options, err
	case err != nil:
		return options, usageError{fmt.Errorf("%w; luatx demo -h lists the flags", err)}
	case flags.NArg() > 0:
		return options, usageError{fmt.Errorf("unexpected argument %q; luatx demo -h lists the flags", flags.Arg(0))}
	}
	if err := options.Validate(); err != nil {
		return options, usageError{err}
	}
	return options, nil
}

// inexactError says that the scripted mode's books are not exact.
type inexactError struct{}

func (inexactError) Error() string { return "the books of the scripted mode are not exact" }

// show runs the modes and prints what came of them.
func show(ctx context.Context, options shop.Options, std standard) error {
	orders, err := readOrders(options, std)
	if err != nil {
		return usageError{err}
	}
	target, stop, err := reach(ctx, options.Redis)
	if err != nil {
		return usageError{err}
	}
	defer stop()
	client := target.connect()
	defer func() { _ = client.Close() }() // at the end of its use
	// Of the server of our own it is known what it lacks.
	if options.Redis != "" {
		if err := check(ctx, client); err != nil {
			return usageError{err}
		}
	}

	report := shop.Report{Expected: shop.Expect(orders)}
	for _, mode := range options.Runs() {
		result, err := runMode(ctx, job{
			options: options, mode: mode, orders: orders, expected: report.Expected,
			server: target, client: client, keys: newLayout(newNamespace()),
		}, std)
		if err != nil {
			return err
		}
		if mode == shop.Pipeline {
			report.Pipeline = &result
		} else {
			report.Scripted = &result
		}
	}
	if err := write(report, options.JSON, std.out); err != nil {
		return err
	}
	if !report.OK() {
		return inexactError{}
	}
	return nil
}

// readOrders reads the orders and reports every line that was dropped.
func readOrders(options shop.Options, std standard) ([]shop.Order, error) {
	if options.Orders == "" {
		return shop.BuiltIn(options.Seed), nil
	}
	orders, problems, err := shop.ReadFile(options.Orders, std.in)
	for _, problem := range problems {
		fmt.Fprintln(std.err, problem)
	}
	if len(problems) > 0 {
		fmt.Fprintf(std.err, "lines dropped: %d\n", len(problems))
	}
	if err == nil && len(orders) == 0 {
		err = fmt.Errorf("%s holds no orders", options.Orders)
	}
	return orders, err
}

// reach finds the server that the flag names, or starts one.
func reach(ctx context.Context, text string) (s server, stop func(), err error) {
	if text == "" {
		return embed()
	}
	if s, err = parseServer(text); err == nil {
		s, err = s.probe(ctx)
	}
	if err != nil {
		return s, nil, fmt.Errorf("--redis: %w", err)
	}
	return s, func() {}, nil
}

// check refuses a server that is too old.
func check(ctx context.Context, client redis.UniversalClient) error {
	transactor, err := luatx.New(client, newLayout(newNamespace()).config())
	if err != nil {
		return err
	}
	return transactor.Check(ctx)
}

// runMode runs a job, and shows on standard error how it goes.
func runMode(ctx context.Context, j job, std standard) (shop.Result, error) {
	terminal, colour := style(std.err)
	j.progress = shop.NewProgress(std.err, terminal, colour, string(j.mode), len(j.orders))
	if j.options.Keep && j.options.Redis != "" { // an embedded server keeps nothing
		fmt.Fprintf(std.err, "%s mode: the keys %s:* stay\n", j.mode, j.keys.namespace)
	}
	out, err := j.run(ctx)
	if err != nil {
		err = fmt.Errorf("%s mode: %w", j.mode, err)
	} else {
		fmt.Fprintln(std.err, out.describe(j.mode))
	}
	if out.log != "" {
		fmt.Fprintf(std.err, "%s mode: the workers' log is %s\n", j.mode, out.log)
	}
	return out.Result, err
}

func write(report shop.Report, asJSON bool, out io.Writer) error {
	if asJSON {
		return report.WriteJSON(out)
	}
	_, colour := style(out)
	return report.WriteTable(out, colour)
}

// style says whether a writer is a terminal, and whether it should be given colours.
func style(out io.Writer) (terminal, colour bool) {
	file, ok := out.(*os.File)
	terminal = ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
	return terminal, terminal && os.Getenv("NO_COLOR") == ""
}
