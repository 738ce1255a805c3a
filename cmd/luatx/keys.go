package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/rekey"
)

const keysUsage = `luatx keys rename gives keys the names of a luatx.Keyspace, by which all keys of an aggregate share a slot.

    luatx keys rename --redis localhost:6379 --pattern 'account:*' --map 'account:{id}:{part}' --keyspace partitions=16

shows what it would do. With --apply it does it, and can be killed and run again at any point: on one server by
RENAMENX, to another slot of a cluster by copying, comparing and deleting what has not changed meanwhile. It never
overwrites. Expiry times, groups and pending entries are kept. What writes to the keys must be stopped.

In --map, {id} stands for the aggregate and other {names} for what else tells the keys apart; they become the parts of
the new name, unless --parts says otherwise: with --parts 'account,{part}' the key account:17:balance becomes
{17}:account:balance under --keyspace own. A {name} holds no colon, no brace and not the character behind it.

The exit status is 0; 1 where a key could not be renamed: its new name is taken, the map does not know it, or the server
refused; 2 for wrong flags and a Redis that cannot be reached.

Flags:

`

// keysOptions are the flags of luatx keys rename.
type keysOptions struct {
	redis, pattern, template, parts, keyspace, prefix string
	dryRun, apply                                     bool
}

// keys runs the subcommands of luatx keys and returns the exit status.
func keys(ctx context.Context, args []string, std standard) int {
	if len(args) == 0 || args[0] != "rename" {
		if len(args) > 0 && (args[0] == "-h" || args[0] == "--help" || args[0] == "help") {
			args = []string{"rename", "-h"}
		} else {
			fmt.Fprintln(std.err, "luatx keys: say luatx keys rename or luatx keys compare; their -h lists the flags")
			return statusUsage
		}
	}
	err := renameKeys(ctx, args[1:], std)
	if errors.Is(err, flag.ErrHelp) {
		return statusFine
	}
	var left keysLeftError
	if err != nil && !errors.As(err, &left) { // the report says it
		fmt.Fprintf(std.err, "luatx keys rename: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return status(ctx, err)
}

// keysLeftError says that some keys have their old names.
type keysLeftError struct{}

func (keysLeftError) Error() string { return "some keys were not renamed" }

func renameKeys(ctx context.Context, args []string, std standard) error {
	options, err := parseKeysOptions(args, std.out)
	if err != nil {
		return err
	}
	cfg, err := options.config()
	if err != nil {
		return usageError{err}
	}
	target, err := parseServer(options.redis)
	if err == nil {
		target, err = target.probe(ctx)
	}
	if err != nil {
		return usageError{fmt.Errorf("--redis: %w", err)}
	}
	client := target.connect()
	defer func() { _ = client.Close() }() // at the end of its use

	report := keysReport{apply: cfg.Apply}
	err = rekey.Run(ctx, client, cfg, report.add)
	report.write(std.out, options.pattern)
	if err == nil && report.left() > 0 {
		err = keysLeftError{}
	}
	return err
}

func parseKeysOptions(args []string, out io.Writer) (keysOptions, error) {
	var o keysOptions
	var complaint bytes.Buffer
	flags := flag.NewFlagSet("luatx keys rename", flag.ContinueOnError)
	flags.SetOutput(&complaint)
	flags.Usage = func() {}
	flags.StringVar(&o.redis, "redis", "", "`address` of the server or the cluster (host:port,…), or its redis:// URL; required")
	flags.StringVar(&o.pattern, "pattern", "", "which keys, as in 'account:*': a `glob` of SCAN; required")
	flags.StringVar(&o.template, "map", "", "what the old names are made of, as in 'account:{id}:{part}'; required")
	flags.StringVar(&o.parts, "parts", "", "comma-separated `parts` of the new names behind the aggregate (default the other placeholders, in order)")
	flags.StringVar(&o.keyspace, "keyspace", "", "partitions=`n` or own, as in the Config of the Transactor; required")
	flags.StringVar(&o.prefix, "prefix", "", "the keyspace's `prefix`")
	flags.BoolVar(&o.dryRun, "dry-run", false, "show what there is to do; the default")
	flags.BoolVar(&o.apply, "apply", false, "rename")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, keysUsage)
		flags.SetOutput(out)
		flags.PrintDefaults()
		return o, err
	case err != nil:
		return o, usageError{fmt.Errorf("%w; luatx keys rename -h lists the flags", err)}
	case flags.NArg() > 0:
		return o, usageError{fmt.Errorf("unexpected argument %q; put patterns in quotes", flags.Arg(0))}
	case o.dryRun && o.apply:
		return o, usageError{errors.New("--dry-run and --apply: say one of them")}
	}
	for name, value := range map[string]string{"redis": o.redis, "pattern": o.pattern, "map": o.template, "keyspace": o.keyspace} {
		if value == "" {
			return o, usageError{fmt.Errorf("--%s is missing; luatx keys rename -h lists the flags", name)}
		}
	}
	return o, nil
}

func (o keysOptions) config() (rekey.Config, error) {
	var parts []string
	if o.parts != "" {
		parts = strings.Split(o.parts, ",")
	}
	m, err := rekey.ParseMap(o.template, parts...)
	if err != nil {
		return rekey.Config{}, fmt.Errorf("--%w", err)
	}
	keyspace, err := parseKeyspace(o.keyspace, o.prefix)
	return rekey.Config{Pattern: o.pattern, Map: m, Keyspace: keyspace, Apply: o.apply}, err
}

func parseKeyspace(text, prefix string) (luatx.Keyspace, error) {
	if strings.ContainsAny(prefix, "{}") {
		return luatx.Keyspace{}, fmt.Errorf("--prefix %q holds a brace, which would hide the tag", prefix)
	}
	if text == "own" {
		return luatx.OwnTags().WithPrefix(prefix), nil
	}
	number, ok := strings.CutPrefix(text, "partitions=")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 1 || n > 16384 {
		return luatx.Keyspace{}, fmt.Errorf("--keyspace %q: say own, or partitions= and a number from 1 to 16384", text)
	}
	return luatx.Partitions(n).WithPrefix(prefix), nil
}

// keysExamples is how many keys of each kind a report names; of the problems it names more.
const (
	keysExamples = 3
	keysProblems = 20
)

// keysReport counts what became of keys, and keeps some to be named.
type keysReport struct {
	apply  bool
	counts [rekey.Outcomes]int
	moved  int
	named  [rekey.Outcomes][]rekey.Step
}

func (r *keysReport) add(s rekey.Step) {
	r.counts[s.Outcome]++
	if s.Outcome == rekey.Renamed && s.Moved {
		r.moved++
	}
	most := keysExamples
	if isProblem(s.Outcome) {
		most = keysProblems
	}
	if s.Outcome != rekey.Named && s.Outcome != rekey.Gone && len(r.named[s.Outcome]) < most {
		r.named[s.Outcome] = append(r.named[s.Outcome], s)
	}
}

func isProblem(o rekey.Outcome) bool {
	return o == rekey.Taken || o == rekey.Unfit || o == rekey.Failed
}

// left is how many keys keep their old names.
func (r *keysReport) left() int {
	return r.counts[rekey.Taken] + r.counts[rekey.Unfit] + r.counts[rekey.Failed]
}

func (r *keysReport) write(out io.Writer, pattern string) {
	labels := [rekey.Outcomes]string{"to rename", "copied before, to complete", "named right", "do not fit the map", "new name is taken", "gone meanwhile", "refused"}
	if r.apply {
		labels[rekey.Renamed], labels[rekey.Completed] = "renamed", "copied before, completed"
	}
	if !r.apply {
		fmt.Fprintln(out, "A dry run: nothing was changed; --apply renames.")
	}
	for outcome, steps := range r.named {
		for _, s := range steps {
			fmt.Fprintf(out, "  %s: %s\n", labels[outcome], describeStep(s))
		}
		if more := r.counts[outcome] - len(steps); more > 0 && len(steps) > 0 {
			fmt.Fprintf(out, "  %s: and %d more\n", labels[outcome], more)
		}
	}
	fmt.Fprintf(out, "keys that match %s\n", pattern)
	for outcome, label := range labels {
		if n := r.counts[outcome]; n > 0 || rekey.Outcome(outcome) == rekey.Renamed {
			fmt.Fprintf(out, "  %-28s %d\n", label, n)
		}
		if rekey.Outcome(outcome) == rekey.Renamed && r.moved > 0 {
			fmt.Fprintf(out, "  %-28s %d\n", "  of these, to another slot", r.moved)
		}
	}
}

func describeStep(s rekey.Step) string {
	text := strconv.Quote(s.Old)
	if s.New != "" {
		text += " → " + strconv.Quote(s.New)
	}
	if s.Err != nil {
		text += ": " + s.Err.Error()
	}
	return text
}
