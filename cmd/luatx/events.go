package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/outbox"
)

var eventVerbs = []verb{
	{
		name: "events list", short: "list events by state: pending, scheduled, retrying, leased, waiting, parked or sent",
		long: `luatx events list lists the events in a state by shard. It sorts them by their time, and waiting events by their ordering keys.
AT is the time of the next attempt of a pending event, the end of a lease, or the time when an event was parked or sent. BEHIND
is the event that a waiting event waits behind. The states scheduled and retrying are parts of pending.`,
		flags: func(flags *flag.FlagSet) action {
			f := filterFlags(flags, new(outbox.Filter))
			state := stateFlag(flags, outbox.Pending)
			limit := flags.Int("limit", 100, "maximum number of events to list; 0 lists all")
			return func(ctx context.Context, s *session, _ []string) error { return s.eventsList(ctx, *state, *f, *limit) }
		},
	},
	{
		name: "events show", args: "id…", acts: true, unnamed: true, short: "show the details of events in any state",
		long: `luatx events show shows the details of the events with the given ids, like luatx parked show. Bodies may be confidential. The
command shows them only with --body, and the audit records the read.`,
		one:   `if no shard has one of the ids`,
		flags: showFlags,
	},
	changeVerb(outbox.ActRetry, outbox.Retrying, "publish pending events now, before their next attempt or their time"),
	changeVerb(outbox.ActReschedule, outbox.Scheduled, "change the time of pending events"),
	changeVerb(outbox.ActCancel, outbox.Scheduled, "delete scheduled events that no relay has leased"),
	changeVerb(outbox.ActPark, outbox.Pending, "park pending or waiting events until an operator acts"),
	changeVerb(outbox.ActDiscard, outbox.Pending, "delete pending, waiting or parked events"),
}

// stateFlag defines the flag for the state of the events.
func stateFlag(flags *flag.FlagSet, usual outbox.State) *outbox.State {
	state := usual
	flags.Func("state", fmt.Sprintf("`state` of the events (default %s)", usual), func(text string) error {
		if !slices.Contains(outbox.States(), outbox.State(text)) {
			return fmt.Errorf("use one of %v", outbox.States())
		}
		state = outbox.State(text)
		return nil
	})
	return &state
}

func (s *session) eventsList(ctx context.Context, state outbox.State, f outbox.Filter, limit int) error {
	n := 0
	for e, err := range s.operator.Outbox().List(ctx, state, outbox.ListOptions{Filter: f}) {
		if err != nil && e.ID == "" {
			return err
		}
		if n++; limit > 0 && n > limit {
			s.out.say("there are more; --limit 0 lists all")
			break
		}
		s.out.eventOf(e)
	}
	if n == 0 {
		s.out.say("no %s event matches", string(state))
	}
	return nil
}

// eventOf prints an event in any state.
func (p *printer) eventOf(e outbox.Event) {
	row := acts.NewEvent(e)
	p.row(row, "SLOT ID STATE AT ATTEMPTS KEY BEHIND DESTINATION TYPE CLASS ERROR", row.Slot, row.ID, acts.StateOf(e), when(row.At), row.Attempts,
		cmp.Or(row.Key, "-"), cmp.Or(row.Behind, "-"), cmp.Or(row.Destination, "-"), cmp.Or(row.Type, "-"), cmp.Or(row.Class, "-"), cut(row.Error))
}

// changeVerb returns the command of an operation on events.
func changeVerb(act outbox.Act, usual outbox.State, short string) verb {
	return verb{
		name: "events " + string(act), args: "[id…]", changes: true, acts: true, reasoned: true, short: short,
		long: "luatx events " + string(act) + ": " + short + `.
It selects the events in a state that match the filter. If you give ids, it selects those of them that match the filter, in any
state unless you set --state. If an id is in several slots, use --slot. An event that a relay has leased is skipped: run the
command again when its lease has ended.`,
		one: `if not all events were changed`,
		flags: func(flags *flag.FlagSet) action {
			c := &changing{change: outbox.Change{Act: act}}
			filterFlags(flags, &c.filter)
			c.state = stateFlag(flags, usual)
			flags.BoolVar(&c.all, "all", false, "select all events in the state; required without ids and filters")
			flags.IntVar(&c.limit, "limit", 0, "maximum number of events to change (default: all)")
			if act == outbox.ActReschedule {
				flags.Func("at", "new due `time`, such as 2026-01-02T15:04:05Z", func(text string) (err error) {
					c.change.At, err = time.Parse(time.RFC3339, text)
					return err
				})
				flags.DurationVar(&c.after, "in", 0, "new due time as a duration from now, instead of --at")
			}
			return func(ctx context.Context, s *session, ids []string) error {
				flags.Visit(func(f *flag.Flag) { c.stated = c.stated || f.Name == "state" })
				return c.run(ctx, s, ids)
			}
		},
	}
}

// changing is the change of a command.
type changing struct {
	change outbox.Change
	state  *outbox.State
	stated bool // --state is set
	filter outbox.Filter
	all    bool
	limit  int
	after  time.Duration
	shown  []outbox.EventName // by the preview of byFilter
}

func (c *changing) run(ctx context.Context, s *session, ids []string) error {
	c.change.Reason = s.reason
	if c.change.Act == outbox.ActReschedule {
		if (c.after == 0) == c.change.At.IsZero() {
			return usageError{errors.New("set exactly one of --at and --in")}
		}
		if c.after != 0 {
			c.change.At, c.after = time.Now().Add(c.after), 0 // the same time as in the preview
		}
	}
	if err := c.change.Validate(); err != nil {
		return usageError{err}
	}
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	if err := oneNaming(c.filter, ids); err != nil {
		return err
	}
	if len(ids)+len(c.filter.Events) > 0 {
		return c.byID(ctx, s, ids)
	}
	if c.filter.String() == "all" && !c.all {
		return usageError{errors.New("ids and filters are missing; use --all for all events of the state")}
	}
	return c.byFilter(ctx, s)
}

// does describes the change of a number of events.
func (c *changing) does(n int) string {
	events := counted(n, "event")
	switch c.change.Act {
	case outbox.ActRetry:
		return "retry " + events + " now"
	case outbox.ActReschedule:
		return "reschedule " + events + " to " + when(c.change.At)
	case outbox.ActDiscard:
		return "discard " + events + " for good"
	default:
		return string(c.change.Act) + " " + events
	}
}

// byID changes the events with the given ids or names that match the filter, in any state unless --state is set.
func (c *changing) byID(ctx context.Context, s *session, ids []string) error {
	found, missing, err := c.find(ctx, s, ids)
	if err != nil {
		return err
	}
	if c.limit > 0 && len(found) > c.limit {
		found = found[:c.limit]
	}
	if s.preview {
		for _, e := range found {
			s.out.eventOf(e)
		}
		s.plan(len(found), "%s", c.does(len(found)))
		return absent(missing)
	}
	bySlot, done := map[int][]string{}, 0
	for _, e := range found {
		bySlot[e.Slot] = append(bySlot[e.Slot], e.ID)
	}
	for _, slot := range slices.Sorted(maps.Keys(bySlot)) {
		answers, err := s.operator.Outbox().Change(ctx, slot, c.change, bySlot[slot]...)
		for _, a := range answers {
			s.out.row(map[string]any{"slot": slot, "id": a.ID, "outcome": a.Outcome}, "SLOT ID OUTCOME", slot, a.ID, a.Outcome)
		}
		if done += answers.Done(); err != nil {
			return err
		}
	}
	if done < len(found) {
		return errors.Join(absent(missing), reportedError{fmt.Errorf("%d of %d were changed", done, len(found))})
	}
	return absent(missing)
}

// find returns the events with the given ids or the names of the filter that match the filter, and the ids and names that none has.
func (c *changing) find(ctx context.Context, s *session, ids []string) (found []outbox.Event, missing []string, err error) {
	matches, err := c.matcher(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	lookUp := func(id string, meant func(outbox.Event) bool) (slots []int, err error) {
		for e, err := range s.operator.Find(ctx, id) {
			if err != nil && e.ID == "" {
				return slots, err
			}
			if meant(e) && matches(e) {
				found, slots = append(found, e), append(slots, e.Slot)
			}
		}
		return slots, nil
	}
	for _, id := range ids {
		slots, err := lookUp(id, func(outbox.Event) bool { return true })
		switch {
		case err != nil:
			return nil, nil, err
		case len(slots) == 0:
			missing = append(missing, id)
		case len(slots) > 1 && len(c.filter.Slots) == 0:
			return nil, nil, usageError{fmt.Errorf("the id %q is in the slots %v; choose slots with --slot, once or more", id, slots)}
		}
	}
	for _, name := range c.filter.Events {
		slots, err := lookUp(name.ID, func(e outbox.Event) bool { return e.Name() == name })
		if err != nil {
			return nil, nil, err
		}
		if len(slots) == 0 {
			missing = append(missing, name.String())
		}
	}
	return found, missing, nil
}

// matcher returns a function that reports whether the filter and --state select an event, regardless of its id.
func (c *changing) matcher(ctx context.Context, s *session) (func(outbox.Event) bool, error) {
	f := c.filter
	f.Events = nil
	if f.Aggregate != "" {
		slot, err := s.operator.Outbox().Slot(f.Aggregate)
		if err != nil {
			return nil, usageError{err}
		}
		if len(f.Slots) > 0 && !slices.Contains(f.Slots, slot) {
			return nil, usageError{fmt.Errorf("--aggregate %q is in the slot %d, which --slot does not name; use one of the flags", f.Aggregate, slot)}
		}
		f.Slots = []int{slot}
	}
	now, err := s.cutoff(ctx)
	return func(e outbox.Event) bool {
		return f.Matches(e, now) && (!c.stated || acts.IsIn(e, *c.state))
	}, err
}

// absent returns the error for ids and names that no event has which matches.
func absent(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return fmt.Errorf("no event that matches has the id %q", strings.Join(ids, ", "))
}

// show is the preview of byFilter.
func (c *changing) show(ctx context.Context, s *session) error {
	destinations := map[string]int{}
	for e, err := range s.operator.Outbox().List(ctx, *c.state, outbox.ListOptions{Filter: c.filter}) {
		if err != nil && e.ID == "" {
			return err
		}
		destinations[e.Destination]++
		if c.shown = append(c.shown, e.Name()); len(c.shown) == c.limit {
			break
		}
	}
	n, skipped := len(c.shown), map[outbox.Outcome]int{}
	s.out.row(map[string]any{"dry_run": true, "matched": n, "done": 0, "skipped": skipped, "destinations": destinations},
		changeColumns, n, 0, outcomes(skipped), outcomes(destinations))
	s.plan(n, "%s", c.does(n))
	return nil
}

const changeColumns = "MATCHED CHANGED SKIPPED DESTINATIONS"

// byFilter changes the events of a state that match the filter.
func (c *changing) byFilter(ctx context.Context, s *session) error {
	if s.preview {
		return c.show(ctx, s)
	}
	f := c.filter
	f.Events = c.shown
	count := s.progress("changed", 0)
	defer count.end()
	r, err := s.operator.Outbox().ChangeAll(ctx, *c.state, f, c.change, outbox.ChangeOptions{
		Limit: c.limit, Progress: func(r outbox.ChangeResult) { count.set(int64(r.Done)) },
	})
	s.out.row(map[string]any{
		"operation": r.Operation, "dry_run": false, "matched": r.Matched, "done": r.Done, "skipped": r.Skipped, "destinations": r.Destinations,
	}, changeColumns, r.Matched, r.Done, outcomes(r.Skipped), outcomes(r.Destinations))
	switch {
	case err != nil:
		return err
	case r.Done < r.Matched:
		return reportedError{fmt.Errorf("%d of %d were changed", r.Done, r.Matched)}
	}
	return nil
}
