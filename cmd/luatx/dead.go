package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/internal/pretty"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stream"
)

// deadName says in the help what names dead letters.
const deadName = `Use the key of the stream. The name of a partitioned stream stands for the streams of all partitions of the keyspace. If a
dead-letter stream has a key of its own, use that key.`

var deadVerbs = []verb{
	{
		name: "dead list", args: "stream", needs: aServer, short: "list the dead letters of a stream, oldest first in each partition",
		long: `luatx dead list lists the dead letters of a stream, oldest first in each partition.
` + deadName,
		one: `if the stream does not exist`,
		flags: func(flags *flag.FlagSet) action {
			f := deadFlags(flags)
			limit := flags.Int("limit", 100, "maximum number of dead letters to list; 0 lists all")
			return func(ctx context.Context, s *session, args []string) error {
				return s.deadList(ctx, args[0], f.filter(), *limit)
			}
		},
	},
	{
		name: "dead show", args: "stream id…", needs: newService, acts: true, unnamed: true, short: "show the origin, deliveries and last error of dead letters",
		long: `luatx dead show shows where dead letters came from, how often they were delivered, and their last error. Their data may be
confidential. The command shows it only with --body, and the audit records the read.`,
		one: `if one of the ids is not a dead letter`,
		flags: func(flags *flag.FlagSet) action {
			body := flags.Bool("body", false, "show the data")
			return func(ctx context.Context, s *session, args []string) error {
				return s.deadShow(ctx, args[0], args[1:], *body)
			}
		},
	},
	{
		name: "dead retry", args: "stream [id…]", needs: newService, changes: true, acts: true, reasoned: true, short: "put dead letters back into their streams, by id or by filter",
		long: `luatx dead retry appends dead letters to the streams and partitions that they came from. Every group of the stream reads them
again. Entries that become dead letters in the meantime are skipped. With --canary a few go first, and the rest follows when the
group has acknowledged them.
` + deadName,
		one: `if not all dead letters were put back`,
		flags: func(flags *flag.FlagSet) action {
			var o admin.DeadLetterOptions
			flags.IntVar(&o.Canary, "canary", 0, "number of dead letters to put back first")
			flags.DurationVar(&o.CanaryWait, "canary-wait", 0, "how long to wait for the canary (default 30s)")
			return deadActFlags(flags, &o, (*admin.DeadLetters).Retry, "put %s back", "put back")
		},
	},
	{
		name: "dead discard", args: "stream [id…]", needs: newService, changes: true, acts: true, reasoned: true, short: "delete dead letters, by id or by filter",
		long: `luatx dead discard deletes dead letters. This cannot be undone, so export them first.
` + deadName,
		one: `if not all dead letters were discarded`,
		flags: func(flags *flag.FlagSet) action {
			return deadActFlags(flags, &admin.DeadLetterOptions{}, (*admin.DeadLetters).Discard, "discard %s for good", "discarded")
		},
	},
	{
		name: "dead export", args: "stream", needs: newService, acts: true, short: "export dead letters as lines of JSON; the audit records the export",
		flags: func(flags *flag.FlagSet) action {
			f := deadFlags(flags)
			name := flags.String("o", "", "`file` to write; it must not exist (default: standard output)")
			return func(ctx context.Context, s *session, args []string) error {
				return s.deadExport(ctx, args[0], f.filter(), *name)
			}
		},
	},
	{
		name: "dead import", args: "stream file", needs: newService, changes: true, acts: true, reasoned: true, short: "import the lines of dead export as dead letters; - reads standard input",
		long: `luatx dead import adds the lines of luatx dead export to the dead letters of the streams that they name, under new ids. It skips dead
letters that already exist, so that you can run it again.
` + deadName,
		flags: func(*flag.FlagSet) action {
			return func(ctx context.Context, s *session, args []string) error { return s.deadImport(ctx, args[0], args[1]) }
		},
	},
}

// deadSelection is what flags select.
type deadSelection struct {
	admin.DeadLetterFilter

	since time.Duration
	all   bool
}

func deadFlags(flags *flag.FlagSet) *deadSelection {
	var c deadSelection
	flags.StringVar(&c.Text, "text", "", "dead letters whose error contains this text")
	flags.StringVar(&c.Group, "group", "", "dead letters of this consumer group")
	flags.StringVar(&c.Type, "type", "", "dead letters of messages of this type")
	flags.DurationVar(&c.since, "since", 0, "dead letters that are at most this old (default: all)")
	return &c
}

// filter returns the filter, as of now.
func (c *deadSelection) filter() admin.DeadLetterFilter {
	if c.since > 0 && c.Since.IsZero() { // the act means what the preview has shown
		c.Since = time.Now().Add(-c.since)
	}
	return c.DeadLetterFilter
}

type deadAct func(*admin.DeadLetters, context.Context, admin.DeadLetterFilter, string, admin.DeadLetterOptions) (admin.DeadLetterResult, error)

// deadActFlags are those of Retry and Discard.
func deadActFlags(flags *flag.FlagSet, o *admin.DeadLetterOptions, act deadAct, plan, done string) action {
	c := deadFlags(flags)
	flags.BoolVar(&c.all, "all", false, "select all dead letters of the stream; required without ids and filters")
	flags.IntVar(&o.Limit, "limit", 0, "maximum number of dead letters to change (default: all)")
	return func(ctx context.Context, s *session, args []string) error {
		c.IDs = slices.Compact(slices.Sorted(slices.Values(args[1:])))
		if c.filter().String() == "all" && !c.all {
			return usageError{errors.New("ids and filters are missing; use --all for all dead letters of the stream")}
		}
		before, err := s.cutoff(ctx)
		if err != nil {
			return err
		}
		opts, asked := *o, len(c.IDs)
		if o.Limit > 0 {
			asked = min(asked, o.Limit)
		}
		opts.Before = before
		opts.DryRun, opts.Limit = s.preview, s.limit(o.Limit)
		return s.deadAct(ctx, s.operator.DeadLetters(args[0]), c.filter(), asked, opts, act, plan, done)
	}
}

// deadAct acts on the dead letters that a filter selects. asked is the number of those that it names by id, within the limit.
func (s *session) deadAct(
	ctx context.Context, d *admin.DeadLetters, f admin.DeadLetterFilter, asked int, o admin.DeadLetterOptions, act deadAct, plan, done string,
) error {
	if o.DryRun && len(f.IDs) > 0 {
		for l, err := range d.List(ctx, f) {
			if err != nil {
				return err
			}
			s.out.dead(l)
		}
		s.out.section("")
	}
	count := s.progress(done, int64(o.Limit))
	o.Progress = func(r admin.DeadLetterResult) { count.set(int64(r.Matched)) }
	r, err := act(d, ctx, f, s.reason, o)
	count.end()
	s.out.row(map[string]any{
		"operation": r.Operation, "dry_run": o.DryRun, "matched": r.Matched, "done": r.Done, "skipped": r.Skipped, "groups": r.Groups,
		"canary":  map[string]int{"handled": r.Canary.Handled, "dead_again": r.Canary.DeadAgain, "trying": r.Canary.Trying},
		"stopped": r.Stopped,
	}, "MATCHED DONE SKIPPED GROUPS", r.Matched, r.Done, outcomes(r.Skipped), outcomes(r.Groups))
	switch {
	case err != nil:
		return err
	case o.DryRun:
		s.plan(r.Matched, plan, counted(r.Matched, "dead letter"))
		if r.Matched == 0 && len(f.IDs) > 0 {
			return errors.New("none of the ids is a dead letter of the stream")
		}
		return nil
	case r.Stopped:
		return fmt.Errorf("stopped by the canary: of %d dead letters, %d were handled, %d are dead letters again, and %d are in progress",
			r.Canary.Handled+r.Canary.DeadAgain+r.Canary.Trying, r.Canary.Handled, r.Canary.DeadAgain, r.Canary.Trying)
	case r.Done < max(r.Matched, asked):
		return fmt.Errorf("%d of %d were %s; the others are no longer dead letters, or are not from a stream of this slot", r.Done, max(r.Matched, asked), done)
	}
	return nil
}

const deadColumns = "ID STREAM GROUP AT DELIVERIES TYPE REASON"

func (p *printer) dead(l admin.DeadLetter) {
	p.row(l, deadColumns, l.ID, l.Stream, l.Group, when(l.At), l.Deliveries, l.Type, cut(l.Reason))
}

func (s *session) deadList(ctx context.Context, name string, f admin.DeadLetterFilter, limit int) error {
	n := 0
	for l, err := range s.operator.DeadLetters(name).List(ctx, f) {
		if errors.Is(err, stream.ErrNotDeadLetter) {
			s.out.say("%s", err.Error())
			continue
		}
		if err != nil {
			return err
		}
		if n++; limit > 0 && n > limit {
			s.out.say("there are more; --limit 0 lists all")
			break
		}
		s.out.dead(l)
	}
	if n == 0 {
		s.out.say("no dead letter matches")
	}
	return nil
}

func (s *session) deadShow(ctx context.Context, name string, ids []string, body bool) error {
	if body && s.as == "" {
		return usageError{errAs}
	}
	d := s.operator.DeadLetters(name)
	var missing []error
	for _, id := range ids {
		l, err := d.Show(ctx, id)
		if err != nil {
			missing = append(missing, err)
			continue
		}
		if body {
			if err := d.RecordRead(ctx, "by id", l); err != nil {
				return err
			}
		}
		s.showDead(l, body)
	}
	return errors.Join(missing...)
}

func (s *session) showDead(l admin.DeadLetter, body bool) {
	if s.json {
		row := struct {
			admin.DeadLetter

			Body any `json:"body,omitempty"`
		}{DeadLetter: l}
		if data := l.Data(); body && json.Valid(data) {
			row.Body = json.RawMessage(data)
		} else if body {
			row.Body = data // in base64
		}
		s.out.row(row, "")
		return
	}
	s.out.section("")
	for _, line := range [][2]string{
		{"id", l.ID},
		{"stream", l.Stream},
		{"entry", l.Entry},
		{"group", l.Group},
		{"consumer", l.Consumer},
		{"type", l.Type},
		{"dead letter since", when(l.At)},
		{"first delivery", when(l.First)},
		{fmt.Sprintf("delivery %d", l.Deliveries), when(l.Last) + "  " + l.Reason},
	} {
		if line[1] != "" {
			s.out.say("%s\t%s", line[0], line[1])
		}
	}
	if !body {
		return
	}
	text, ok := pretty.JSON(l.Data())
	if !ok {
		text = string(l.Data())
	}
	if !utf8.ValidString(text) {
		s.out.say("the data is not text; --json shows it in base64")
		return
	}
	for line := range strings.Lines(text) {
		s.out.say("%s", strings.TrimRight(line, "\n"))
	}
}

func (s *session) deadExport(ctx context.Context, name string, f admin.DeadLetterFilter, file string) error {
	d := s.operator.DeadLetters(name)
	return s.export(file,
		func() error { return d.RecordRead(ctx, f.String()) },
		func(out io.Writer) (int, error) { return d.Export(ctx, out, f) })
}

func (s *session) deadImport(ctx context.Context, name, file string) error {
	d := s.operator.DeadLetters(name)
	preview := func(in io.Reader) error {
		r, err := d.Import(ctx, in, "", admin.ImportOptions{DryRun: true})
		s.plan(r.Imported, "import %s", counted(r.Imported, "dead letter"))
		s.out.row(map[string]any{"dry_run": true, "read": r.Read, "imported": r.Imported, "skipped": r.Skipped},
			"READ MISSING SKIPPED", r.Read, r.Imported, outcomes(r.Skipped))
		return err
	}
	return s.importFile(file, preview, func(in io.Reader) (outbox.ImportResult, error) {
		return d.Import(ctx, in, s.reason, admin.ImportOptions{})
	})
}
