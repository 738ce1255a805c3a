package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/cmd/luatx/internal/shop"
)

var demoVerb = verb{
	name: "demo", needs: ownServer, short: "compare pipeline mode and luatx in a shop whose workers die and whose replies are lost",
	long: `luatx demo sells the orders of a shop. Each message is an invoice. A handler books it on its customer and returns an
event for each line. The events go to the products, where a second handler subtracts the quantity from the stock. The
demo kills worker processes while they work and drops replies of Redis. At the end it compares money and stock with the
orders.

Pipeline mode uses SET NX for the inbox, MULTI … EXEC for the writes, and XACK at the end. Scripted mode is luatx, which
does all of that in one script. The handlers are the same.

p50 and p99 are the times from the receipt of an invoice by a worker to its acknowledgement. The embedded server runs Lua
in Go, which is slow. To compare speeds, use a real server:

    luatx demo --redis localhost:6379

On that server, the keys of the demo begin with a namespace of their own. The demo deletes them at the end.`,
	one: `if the result of scripted mode is not exact, or a run does not complete`,
	flags: func(flags *flag.FlagSet) action {
		var options shop.Options
		options.Register(flags)
		return func(ctx context.Context, s *session, _ []string) error {
			if err := options.Validate(); err != nil {
				return usageError{err}
			}
			return show(ctx, options, s.std)
		}
	},
}

// errInexact sets the exit status and is not printed, because the table shows the difference.
var errInexact = reportedError{errors.New("the result of scripted mode is not exact")}

// show runs the modes and prints the results.
func show(ctx context.Context, options shop.Options, std standard) error {
	orders, err := readOrders(options, std)
	if err != nil {
		return usageError{err}
	}
	target, stop, err := serverOf(ctx, options.Redis)
	if err != nil {
		return usageError{err}
	}
	defer stop()
	client := target.connect()
	defer func() { _ = client.Close() }() // the client is not used again
	// The limitations of the embedded server are known.
	if options.Redis != "" {
		transactor, err := luatx.New(client, newLayout(newNamespace()).config())
		if err == nil {
			err = transactor.Check(ctx)
		}
		if err != nil {
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
	write := report.WriteJSON
	if !options.JSON {
		_, colour := style(std.out)
		write = func(out io.Writer) error { return report.WriteTable(out, colour) }
	}
	if err := write(std.out); err != nil {
		return err
	}
	if !report.OK() {
		return errInexact
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

// serverOf returns the server that the flag names, or an embedded one that it starts.
func serverOf(ctx context.Context, text string) (s server, stop func(), err error) {
	if text == "" {
		return embed()
	}
	s, err = reach(ctx, text)
	return s, func() {}, err
}

// runMode runs a job and shows its progress on standard error.
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

// style reports whether a writer is a terminal, and whether it should get colors.
func style(out io.Writer) (terminal, colour bool) {
	terminal = isTerminal(out) && os.Getenv("TERM") != "dumb"
	return terminal, terminal && os.Getenv("NO_COLOR") == ""
}
