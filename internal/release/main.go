// Command release tags a version of every published module in this clone, after it has proved that the version can be
// fetched.
//
//	release VERSION           checks the tree, commits the version to the go.mod files, proves the result and creates the tags
//	release -tagged VERSION   checks and proves existing tags, as continuous integration does
//
// It works in a clone of its own, so that a failed version leaves this clone unchanged. It never pushes.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err == nil {
		return
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(os.Stderr, "release: %s\n", strings.TrimRight(line, "\n"))
	}
	os.Exit(1)
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	tagged := flags.Bool("tagged", false, "check and prove tags that exist, and create none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("got %d arguments; usage: make release VERSION=v0.1.0", flags.NArg())
	}
	dir, err := command(ctx, ".", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	r, err := open(ctx, strings.TrimSpace(dir), flags.Arg(0), out)
	if err != nil {
		return err
	}
	if *tagged {
		return r.verify(ctx)
	}
	return r.create(ctx)
}
