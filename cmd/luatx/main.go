// Command luatx demonstrates and operates services that use the library. `luatx demo` sells a shop's orders with worker
// processes that are killed and replies that are lost, once in pipeline mode and once in scripted mode, and compares the
// books. `luatx bench` compares the ways to commit on a server. `luatx keys rename` gives existing keys the names that
// transactions need. The other commands are for the operator of a service.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

// The exit statuses.
const (
	statusFine        = 0
	statusInexact     = 1 // or the run did not complete
	statusUsage       = 2 // or the input cannot be read, or the server cannot be reached
	statusInterrupted = 130
)

// statuses explains the exit statuses in the help and in docs/cli.md.
var statuses = []struct {
	code  int
	means string
}{
	{statusFine, "success: no problems found, or all changes made"},
	{statusInexact, "a problem was found or work is left: a wrong address, an unknown event or message, a finding, a server error"},
	{statusUsage, "wrong flags or arguments, an unconfirmed change, an unreadable file, or an unreachable Redis"},
	{statusInterrupted, "interrupted by a signal"},
}

const usage = `luatx commits the changes of a message handler in Redis with one script on one hash slot.

Usage:

%s    luatx version           print the version
    luatx help [command]    print this text, or the help of a command

Commands for the operator of a service:

%s
Use luatx <command> -h to list the flags of a command. The demo needs no server: without --redis it runs on an embedded one.

Commands that change something ask for confirmation.
%s

Exit status:

%s`

// help returns the usage with the commands.
func help() string {
	var codes strings.Builder
	for _, s := range statuses {
		fmt.Fprintf(&codes, "    %-4d%s\n", s.code, s.means)
	}
	return fmt.Sprintf(usage, list(programs), list(verbs()[len(programs):]), confirmation, codes.String())
}

// list returns a line of help for each command.
func list(verbs []verb) string {
	var text strings.Builder
	for _, v := range verbs {
		fmt.Fprintf(&text, "    luatx %-18s%s\n", v.name, v.short)
	}
	return text.String()
}

// standard holds the standard files of a command.
type standard struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	logging.Disable()            // messages of go-redis about connections, which break on purpose here
	os.Exit(command(ctx, os.Args[1:], standard{os.Stdin, os.Stdout, os.Stderr}))
}

// command runs one subcommand and returns the exit status.
func command(ctx context.Context, args []string, std standard) int {
	if code, found := operate(ctx, args, std); found {
		return code
	}
	name := "help"
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	switch {
	case name == workerCommand:
		return work(std)
	case strings.TrimLeft(name, "-") == "version":
		fmt.Fprintln(std.out, version())
		return statusFine
	case slices.Contains(helpWords, name) && len(args) > 0:
		return helpOn(args, std)
	case slices.Contains(helpWords, name):
		fmt.Fprint(std.out, help())
		return statusFine
	}
	return unknown(append([]string{name}, args...), std)
}

// version returns the module's version, with the revision if the program was built in its repository.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "luatx (unknown version)"
	}
	words := []string{"luatx", info.Main.Version}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			words = append(words, setting.Value)
		}
	}
	return strings.Join(append(words, info.GoVersion), " ")
}

// usageError is an error in the use of the program: a flag, a file or an address.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// status returns the exit status for an error.
func status(ctx context.Context, err error) int {
	_, wrong := errors.AsType[usageError](err)
	switch {
	case err == nil:
		return statusFine
	case ctx.Err() != nil:
		return statusInterrupted
	case wrong:
		return statusUsage
	}
	return statusInexact
}
