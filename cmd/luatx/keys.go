package main

import (
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

var renameVerb = verb{
	name: "keys rename", needs: ownServer, changes: true, short: "rename existing keys to the names of a luatx.Keyspace",
	long: `luatx keys rename renames keys to the names of a luatx.Keyspace, in which all keys of an aggregate share a slot.

    luatx keys rename --redis localhost:6379 --pattern 'account:*' --map 'account:{id}:{part}' --keyspace partitions=16

You can interrupt the command and run it again at any point. It uses RENAMENX. If a new key is in another slot of a cluster, it
copies the key, compares both, and deletes the old key unless that has changed. It never overwrites a key. It keeps expiry
times, groups and pending entries. Before you run it, stop all programs that write to the keys.

In --map, {id} stands for the aggregate. Other {names} stand for the other variable parts of a key. They become the parts of
the new name, unless --parts is set. With --parts 'account,{part}' the key account:17:balance becomes {17}:account:balance
under --keyspace own. A {name} does not match a colon, a brace or the character behind it. {{ and }} stand for braces.

If a luatx.Keyspace has built the old names, set --from instead of --map, and --from-prefix if they have a prefix. Each key
keeps its aggregate and its parts, and gets the tag and the prefix of the new keyspace:

    luatx keys rename --redis localhost:6379 --pattern '{*}:order-*' --from partitions=16 --keyspace partitions=32

The command does not rename the keys that luatx keeps in its shards. Choose a --pattern that does not match the streams of
partitions, because their names have the same form as those of aggregates.`,
	one: `if a key could not be renamed because its new name exists, it does not match --map or --from, or the server returned an error`,
	flags: func(flags *flag.FlagSet) action {
		var o keysOptions
		flags.StringVar(&o.redis, "redis", "", "`address` of the server or the cluster (host:port,…), or its redis:// URL; required")
		flags.StringVar(&o.pattern, "pattern", "", "`glob` pattern of the keys for SCAN, in quotes, such as 'account:*'; required")
		flags.StringVar(&o.template, "map", "", "pattern of the old names, such as 'account:{id}:{part}'; this or --from is required")
		flags.StringVar(&o.parts, "parts", "", "comma-separated `parts` of the new names behind the aggregate, with --map (default: the other placeholders, in order)")
		flags.StringVar(&o.from, "from", "", "partitions=`n` or own: the keyspace of the old names; this or --map is required")
		flags.StringVar(&o.fromPrefix, "from-prefix", "", "`prefix` of the keyspace of the old names, with --from")
		flags.StringVar(&o.keyspace, "keyspace", "", "partitions=`n` or own, as in the Config of the Transactor; required")
		flags.StringVar(&o.prefix, "prefix", "", "`prefix` of the keyspace")
		return func(ctx context.Context, s *session, _ []string) error { return o.rename(ctx, s) }
	},
}

// keysOptions are the flags of luatx keys rename.
type keysOptions struct {
	redis, pattern, template, parts, from, fromPrefix, keyspace, prefix string
}

func (o keysOptions) rename(ctx context.Context, s *session) error {
	cfg, err := o.config()
	cfg.Apply = !s.preview
	if err != nil {
		return usageError{err}
	}
	target, err := reach(ctx, o.redis)
	if err != nil {
		return err
	}
	client := target.connect()
	defer func() { _ = client.Close() }() // the client is not used again

	report := keysReport{apply: cfg.Apply}
	err = rekey.Run(ctx, client, cfg, report.add)
	report.write(s.std.out, o.pattern)
	if n := report.counts[rekey.Renamed] + report.counts[rekey.Completed]; s.preview {
		s.plan(n, "rename %s", counted(n, "key"))
	}
	if err == nil && report.left() > 0 {
		err = reportedError{errors.New("some keys were not renamed")}
	}
	return err
}

func (o keysOptions) config() (cfg rekey.Config, err error) {
	for _, required := range [][2]string{{"redis", o.redis}, {"pattern", o.pattern}, {"keyspace", o.keyspace}} {
		if required[1] == "" {
			return cfg, fmt.Errorf("--%s is missing; luatx keys rename -h lists the flags", required[0])
		}
	}
	keyspace, err := parseKeyspace(o.keyspace, o.prefix)
	if err != nil {
		return cfg, err
	}
	m, err := o.oldNames()
	return rekey.Config{Pattern: o.pattern, Map: m, Keyspace: keyspace}, err
}

// oldNames returns the Map of --map or --from.
func (o keysOptions) oldNames() (rekey.Map, error) {
	switch {
	case o.from == "" && o.template == "":
		return rekey.Map{}, errors.New("--map and --from are missing; use --from if a luatx.Keyspace has built the old names, and --map otherwise")
	case o.from == "" && o.fromPrefix != "":
		return rekey.Map{}, errors.New("--from-prefix is set without --from; in --map, write the prefix into the pattern")
	case o.from == "":
		m, err := rekey.ParseMap(o.template, split(o.parts)...)
		if err != nil {
			return m, fmt.Errorf("--%w", err)
		}
		return m, nil
	case o.template != "":
		return rekey.Map{}, errors.New("--map and --from are both set; use --from if a luatx.Keyspace has built the old names, and --map otherwise")
	case o.parts != "":
		return rekey.Map{}, errors.New("--parts and --from are both set; with --from, each key keeps its parts")
	case o.from == o.keyspace && o.fromPrefix == o.prefix:
		return rekey.Map{}, errors.New("--from and --keyspace are the same, and so are their prefixes; nothing would be renamed")
	}
	from, err := parseKeyspaceFlags("from", o.from, "from-prefix", o.fromPrefix)
	return rekey.From(from), err
}

// split returns the elements of a comma-separated list. It returns none for an empty text.
func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

func parseKeyspace(text, prefix string) (luatx.Keyspace, error) {
	return parseKeyspaceFlags("keyspace", text, "prefix", prefix)
}

// parseKeyspaceFlags parses a keyspace and its prefix, which are the values of the named flags.
func parseKeyspaceFlags(flag, text, prefixFlag, prefix string) (luatx.Keyspace, error) {
	if strings.ContainsAny(prefix, "{}") {
		return luatx.Keyspace{}, fmt.Errorf("--%s %q has a brace, which would hide the tag; leave it out", prefixFlag, prefix)
	}
	if text == "own" {
		return luatx.OwnTags().WithPrefix(prefix), nil
	}
	number, ok := strings.CutPrefix(text, "partitions=")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 1 || n > 16384 {
		return luatx.Keyspace{}, fmt.Errorf("--%s is %q; use own, or partitions= and a number from 1 to 16384", flag, text)
	}
	return luatx.Partitions(n).WithPrefix(prefix), nil
}

// keysExamples is the number of keys of each kind that a report names, and keysProblems the number of problems.
const (
	keysExamples = 3
	keysProblems = 20
)

// keysReport counts the keys by outcome, and records examples.
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

// left returns the number of keys that keep their old names.
func (r *keysReport) left() int {
	return r.counts[rekey.Taken] + r.counts[rekey.Unfit] + r.counts[rekey.Failed]
}

func (r *keysReport) write(out io.Writer, pattern string) {
	labels := [rekey.Outcomes]string{"to rename", "copied before, to complete", "named right", "do not match", "new name is taken", "gone meanwhile", "refused"}
	if r.apply {
		labels[rekey.Renamed], labels[rekey.Completed] = "renamed", "copied before, completed"
	}
	if !r.apply {
		fmt.Fprintln(out, "This is a preview. Nothing was changed.")
	}
	for outcome, steps := range r.named {
		for _, s := range steps {
			fmt.Fprintf(out, "  %s: %s\n", labels[outcome], describeStep(s))
		}
		if more := r.counts[outcome] - len(steps); more > 0 && len(steps) > 0 {
			fmt.Fprintf(out, "  %s: %d more\n", labels[outcome], more)
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
