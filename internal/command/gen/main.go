// Command gen writes the table of package command from a server's facts, and the page that lists all commands.
//
//	docker run --rm -p 6379:6379 redis:8.6
//	go generate ./internal/command
//
// It runs in the directory of the package. "gen table" asks the server for its commands and writes table_gen.go. "gen
// docs" writes the page from the table that is compiled in.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	tablePath = "table_gen.go"
	docsPath  = "../../docs/commands.md"
)

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(args []string, usage io.Writer) error {
	flags := flag.NewFlagSet("gen", flag.ContinueOnError)
	flags.SetOutput(usage)
	addr := flags.String("addr", "127.0.0.1:6379", "address of a current Redis server, as `docker run redis:8.6` starts one")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch flags.Arg(0) {
	case "table":
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		text, err := table(ctx, *addr)
		if err != nil {
			return err
		}
		return os.WriteFile(tablePath, text, 0o644)
	case "docs":
		return os.WriteFile(docsPath, []byte(docs()), 0o644)
	}
	return fmt.Errorf("%q is neither table nor docs", flags.Arg(0))
}
