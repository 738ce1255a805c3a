package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/internal/pretty"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/outbox"
)

var parkedVerbs = []verb{
	{
		name: "parked list", short: "parked events, the oldest of each shard first",
		flags: func(flags *flag.FlagSet) action {
			f := filterFlags(flags, new(outbox.Filter))
			limit := flags.Int("limit", 100, "the most events to list; 0: all")
			return func(ctx context.Context, s *session, _ []string) error { return s.parkedList(ctx, *f, *limit) }
		},
	},
	{
		name: "parked show", args: "id…", acts: true, unnamed: true, short: "all that is known of events, in whatever state they are",
		long: `luatx parked show tells all that is known of the events of an id, in whatever state they are: attempts, when the next one
is, and the last five failures. Bodies may be confidential. The command shows them only with --body, and the
audit records that.`,
		one:   `if no shard knows one of the ids`,
		flags: showFlags,
	},
	{
		name: "parked rearm", args: "[id…]", changes: true, acts: true, limited: true, short: "let parked events be published again, by id or by filter",
		long: `luatx parked rearm lets parked events be published again: those of the ids, or those that the filter means. If an id is parked
in several slots, --slot chooses. What is parked meanwhile, or again, is left alone. With --canary some go first, and the others
follow when those were sent.`,
		one:   `if not all were re-armed`,
		flags: rearmFlags,
	},
	{
		name: "parked discard", args: "[id…]", changes: true, acts: true, reasoned: true, short: "remove parked events for good, by id or by filter",
		long: `luatx parked discard removes parked events for good, bodies and ids: the same event would be new again. If an id is
parked in several slots, --slot chooses. Export them before.`,
		one:   `if not all were discarded`,
		flags: discardFlags,
	},
	{
		name: "parked export", acts: true, short: "write parked events as lines of JSON, which the audit records",
		flags: func(flags *flag.FlagSet) action {
			f := filterFlags(flags, new(outbox.Filter))
			name := flags.String("o", "", "`file` to write, which must not exist (default the standard output)")
			return func(ctx context.Context, s *session, _ []string) error { return s.parkedExport(ctx, *f, *name) }
		},
	},
	{
		name: "parked import", args: "file", needs: newService, changes: true, acts: true, limited: true, short: "take in what export wrote, as parked events; - is the standard input",
		long: `luatx parked import takes in what export wrote, as parked events. What is known already stays as it is, so that it may be
run again.`,
		one: `if some had another body, or found no room`,
		flags: func(*flag.FlagSet) action {
			return func(ctx context.Context, s *session, args []string) error { return s.parkedImport(ctx, args[0]) }
		},
	},
}

// filterFlags defines the flags that select events.
func filterFlags(flags *flag.FlagSet, f *outbox.Filter) *outbox.Filter {
	for _, field := range acts.FilterFields(f) {
		flags.StringVar(field.Value, field.Name, "", field.Usage)
	}
	flags.DurationVar(&f.OlderThan, "older-than", 0, "events that have been parked for so long")
	slotFlag(flags, "events", &f.Slots)
	return f
}

func showFlags(flags *flag.FlagSet) action {
	body := flags.Bool("body", false, "show the bodies")
	var slots []int
	slotFlag(flags, "events", &slots)
	return func(ctx context.Context, s *session, ids []string) error { return s.parkedShow(ctx, ids, slots, *body) }
}

func slotFlag(flags *flag.FlagSet, things string, slots *[]int) {
	flags.Func("slot", things+" of this `slot` alone; may be said again", func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n >= slot.Count {
			return fmt.Errorf("use a number from 0 to %d", slot.Count-1)
		}
		*slots = append(*slots, n)
		return nil
	})
}

func (s *session) parkedList(ctx context.Context, f outbox.Filter, limit int) error {
	n := 0
	for e, err := range s.operator.Outbox().Parked(ctx, f) {
		if err != nil && e.ID == "" {
			return err
		}
		if n++; limit > 0 && n > limit {
			s.out.say("and more: --limit 0 lists all")
			break
		}
		s.out.event(e)
	}
	if n == 0 {
		s.out.say("no parked event is meant")
	}
	return nil
}

func (s *session) parkedShow(ctx context.Context, ids []string, slots []int, body bool) error {
	if body && s.as == "" {
		return usageError{errAs}
	}
	var missing []error
	for _, id := range ids {
		found := false
		for e, err := range s.operator.Find(ctx, id) {
			if err != nil && e.ID == "" {
				return err
			}
			if len(slots) > 0 && !slices.Contains(slots, e.Slot) {
				continue
			}
			found = true
			if body {
				if err := s.operator.RecordRead(ctx, "by id", e); err != nil {
					return err
				}
			}
			holder, _, err := s.operator.Holder(ctx, e)
			if err != nil {
				return err
			}
			s.showEvent(e, body, holder.ID)
		}
		if !found {
			missing = append(missing, fmt.Errorf("no shard has the event %q", id))
		}
	}
	return errors.Join(missing...)
}

func (s *session) showEvent(e outbox.Event, body bool, holder string) {
	row := eventRow{Event: acts.NewEvent(e), History: acts.NewHistory(e), Holder: holder}
	if body && len(e.Body) > 0 {
		raw := json.RawMessage(e.Body)
		if !json.Valid(raw) {
			raw, _ = json.Marshal(e.Body) // in base64
		}
		row.Body = &raw
	}
	if s.json {
		s.out.row(row, "")
		return
	}
	s.out.section("")
	at := map[outbox.State]string{outbox.Pending: "next attempt", outbox.Leased: "lease ends", outbox.Sent: "sent", outbox.Parked: "parked"}[e.State]
	for _, line := range [][2]string{
		{"id", e.ID},
		{"slot", fmt.Sprint(e.Slot)},
		{"state", string(acts.StateOf(e))},
		{cmp.Or(at, "time"), when(row.At)},
		{"held by", holder},
		{"attempts", fmt.Sprint(e.Attempts)},
		{"destination", row.Destination},
		{"type", row.Type},
		{"ordering key", row.Key},
		{"waits behind", row.Behind},
		{"holds back", counted(row.HoldsBack, "event")},
	} {
		if line[1] != "" && line[1] != "0 events" {
			s.out.say("%s\t%s", line[0], line[1])
		}
	}
	if e.Erased {
		s.out.say("body\twas erased: it cannot be re-armed")
	}
	for _, f := range e.History {
		s.out.say("attempt %d\t%s  %s  %s", f.Attempt, when(f.At), f.Class, f.Text)
	}
	if row.Body != nil {
		text, ok := pretty.JSON(*row.Body)
		if !ok {
			text = string(*row.Body) // it is nested too deeply
		}
		for line := range strings.Lines(text) {
			s.out.say("%s", strings.TrimRight(line, "\n"))
		}
	}
}

func (s *session) parkedExport(ctx context.Context, f outbox.Filter, name string) error {
	return s.export(name,
		func() error { return s.operator.RecordRead(ctx, f.String()) },
		func(out io.Writer) (int, error) { return s.operator.Outbox().Export(ctx, out, f) })
}

// export records the export, and then writes lines to the named file or to the standard output.
func (s *session) export(name string, record func() error, write func(io.Writer) (int, error)) error {
	if name == "" {
		if err := record(); err != nil {
			return err
		}
		_, err := write(s.std.out)
		return err
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usageError{err}
	}
	if err := record(); err != nil {
		return errors.Join(err, file.Close())
	}
	count := s.progress("exported", 0)
	n, err := write(io.MultiWriter(file, countLines{count}))
	count.end()
	if err = errors.Join(err, file.Close()); err == nil {
		s.out.row(map[string]int{"exported": n}, "EXPORTED", n)
	}
	return err
}

func (s *session) parkedImport(ctx context.Context, name string) error {
	return s.importFile(name, s.previewImport, func(in io.Reader) (outbox.ImportResult, error) { return s.operator.Outbox().Import(ctx, in) })
}

// importFile reads lines from the named file or from the standard input, for a preview or an import.
func (s *session) importFile(name string, preview func(io.Reader) error, read func(io.Reader) (outbox.ImportResult, error)) error {
	in, size := s.std.in, int64(0)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return usageError{err}
		}
		defer file.Close() //nolint:errcheck // it was only read
		in = file
		if about, err := file.Stat(); err == nil {
			size = about.Size()
		}
	}
	if s.preview {
		return preview(in)
	}
	count := s.progress("bytes", size)
	result, err := read(countBytes{in, count})
	count.end()
	s.out.row(map[string]any{"operation": result.Operation, "read": result.Read, "imported": result.Imported, "skipped": result.Skipped},
		"READ IMPORTED SKIPPED", result.Read, result.Imported, outcomes(result.Skipped))
	if err == nil && result.Skipped[outbox.Conflicting]+result.Skipped[outbox.Full] > 0 {
		err = reportedError{errors.New("some lines were not imported")}
	}
	return err
}

// previewImport counts the lines that export wrote.
func (s *session) previewImport(in io.Reader) error {
	decoder, n := json.NewDecoder(in), 0
	for {
		var event struct {
			ID string `json:"id"`
		}
		err := decoder.Decode(&event)
		if errors.Is(err, io.EOF) {
			break
		}
		if n++; err == nil && event.ID == "" {
			err = errors.New("the line has no id")
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	s.plan(n, "import %s", counted(n, "event"))
	s.out.row(map[string]any{"dry_run": true, "read": n}, "READ", n)
	return nil
}
