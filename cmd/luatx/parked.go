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

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/internal/pretty"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/outbox"
)

var parkedVerbs = []verb{
	{
		name: "parked list", short: "list parked events, oldest first in each shard",
		flags: func(flags *flag.FlagSet) action {
			f := filterFlags(flags, new(outbox.Filter))
			limit := flags.Int("limit", 100, "maximum number of events to list; 0 lists all")
			return func(ctx context.Context, s *session, _ []string) error { return s.parkedList(ctx, *f, *limit) }
		},
	},
	{
		name: "parked show", args: "id…", acts: true, unnamed: true, short: "show the details of events in any state",
		long: `luatx parked show shows the details of the events with the given ids, in any state: the number of attempts, the time of the
next one, and the last five failures. Bodies may be confidential. The command shows them only with --body, and the audit records
the read.`,
		one:   `if no shard has one of the ids`,
		flags: showFlags,
	},
	{
		name: "parked rearm", args: "[id…]", changes: true, acts: true, limited: true, short: "re-arm parked events, so that relays publish them again, by id or by filter",
		long: `luatx parked rearm re-arms the parked events with the given ids, or those that match the filter. Relays then publish them again.
If an id is parked in several slots, use --slot. Events that are parked in the meantime are skipped, including those that park
again. With --canary a few events go first, and the rest follows when they were sent.`,
		one:   `if not all events were re-armed`,
		flags: rearmFlags,
	},
	{
		name: "parked discard", args: "[id…]", changes: true, acts: true, reasoned: true, short: "delete parked events, by id or by filter",
		long: `luatx parked discard deletes parked events with their bodies and ids. This cannot be undone, so export them first. If a producer
emits the same event again, luatx treats it as a new event. If an id is parked in several slots, use --slot.`,
		one:   `if not all events were discarded`,
		flags: discardFlags,
	},
	{
		name: "parked export", acts: true, short: "export parked events as lines of JSON; the audit records the export",
		flags: func(flags *flag.FlagSet) action {
			f := filterFlags(flags, new(outbox.Filter))
			name := flags.String("o", "", "`file` to write; it must not exist (default: standard output)")
			return func(ctx context.Context, s *session, _ []string) error { return s.parkedExport(ctx, *f, *name) }
		},
	},
	{
		name: "parked import", args: "file", needs: newService, changes: true, acts: true, limited: true, short: "import the lines of parked export as parked events; - reads standard input",
		long: `luatx parked import imports the lines of luatx parked export as parked events. It does not change events that already exist, so
that you can run it again.`,
		one: `if an event exists with another body, or an outbox was full`,
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
	flags.DurationVar(&f.OlderThan, "older-than", 0, "events that have been parked for at least this long")
	slotFlag(flags, "events", &f.Slots)
	flags.Func("event", "only the event `slot:id`; may be repeated, for events of several slots", func(text string) error {
		name, err := outbox.ParseEventName(text)
		if err != nil || name.Slot < 0 || name.Slot >= slot.Count {
			return fmt.Errorf("use slot:id, with a slot from 0 to %d", slot.Count-1)
		}
		f.Events = append(f.Events, name)
		return nil
	})
	return f
}

func showFlags(flags *flag.FlagSet) action {
	body := flags.Bool("body", false, "show the bodies")
	var slots []int
	slotFlag(flags, "events", &slots)
	return func(ctx context.Context, s *session, ids []string) error { return s.parkedShow(ctx, ids, slots, *body) }
}

func slotFlag(flags *flag.FlagSet, things string, slots *[]int) {
	flags.Func("slot", "only "+things+" of this `slot`; may be repeated", func(text string) error {
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
			s.out.say("there are more; --limit 0 lists all")
			break
		}
		s.out.event(e)
	}
	if n == 0 {
		s.out.say("no parked event matches")
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
			s.showEvent(e, body, holder)
		}
		if !found {
			missing = append(missing, fmt.Errorf("no shard has the event %q", id))
		}
	}
	return errors.Join(missing...)
}

func (s *session) showEvent(e outbox.Event, body bool, holder admin.Process) {
	row := eventRow{Event: acts.NewEvent(e), History: acts.NewHistory(e), Holder: holder.ID}
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
	heldBy := holder.ID
	if holder.Dead {
		heldBy += ", which is dead"
	}
	s.out.section("")
	at := map[outbox.State]string{outbox.Pending: "next attempt", outbox.Leased: "lease ends", outbox.Sent: "sent", outbox.Parked: "parked"}[e.State]
	for _, line := range [][2]string{
		{"id", e.ID},
		{"slot", fmt.Sprint(e.Slot)},
		{"state", string(acts.StateOf(e))},
		{cmp.Or(at, "time"), when(row.At)},
		{"held by", heldBy},
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
		s.out.say("body\terased; the event cannot be re-armed")
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
	if s.shown > 0 { // the preview has read it
		if about, err := os.Stat(name); name == "-" || err == nil && !about.Mode().IsRegular() {
			return usageError{fmt.Errorf("nothing was imported: %s can be read only once, and the preview has read it; use --yes, or a file", name)}
		}
	}
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
