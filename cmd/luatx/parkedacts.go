package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/outbox"
)

// chosen is the selection of parked events for an operation.
type chosen struct {
	outbox.Filter

	all  bool
	made acts.Choice // the events with the given ids
}

func chosenFlags(flags *flag.FlagSet) *chosen {
	c := &chosen{}
	filterFlags(flags, &c.Filter)
	flags.BoolVar(&c.all, "all", false, "select all parked events; required without ids and filters")
	return c
}

// choose checks the selection. In a preview it lists the events with the given ids. An id in several slots needs --slot.
func (c *chosen) choose(ctx context.Context, s *session, ids []string) error {
	c.IDs = slices.Compact(slices.Sorted(slices.Values(ids)))
	if err := oneNaming(c.Filter, c.IDs); err != nil {
		return err
	}
	if c.String() == "all" && !c.all {
		return usageError{errors.New("ids and filters are missing; use --all for all parked events")}
	}
	if len(c.IDs)+len(c.Events) == 0 {
		return nil
	}
	var err error
	c.made, err = acts.Choose(ctx, s.operator.Outbox(), outbox.Parked, c.Filter)
	ambiguous, several := errors.AsType[*acts.AmbiguousError](err)
	if err != nil && !several {
		return err
	}
	if s.preview || several {
		for _, e := range c.made.Events {
			s.out.event(e)
		}
		s.out.section("")
	}
	switch {
	case several:
		return usageError{fmt.Errorf("%w with --slot, once or more", ambiguous)}
	case s.preview && len(c.made.Events) == 0:
		return c.incomplete("re-armed or discarded", 0, 0)
	}
	return nil
}

// oneNaming returns an error if ids and names both select events.
func oneNaming(f outbox.Filter, ids []string) error {
	if len(ids) > 0 && len(f.Events) > 0 {
		return usageError{errors.New("ids and --event are both given; use one of them")}
	}
	return nil
}

// incomplete returns an error if fewer events were changed than selected by id, within a limit unless that is 0.
func (c *chosen) incomplete(what string, done, limit int) error {
	total := len(c.made.Events) + len(c.made.Missing)
	switch {
	case len(c.made.Missing) > 0:
		return fmt.Errorf("%d of %d were %s; no parked event has the id %s", done, total, what, strings.Join(c.made.Missing, ", "))
	case done < total && (limit == 0 || done < limit):
		return fmt.Errorf("%d of %d were %s; the others are no longer parked", done, total, what)
	}
	return nil
}

func rearmFlags(flags *flag.FlagSet) action {
	c := chosenFlags(flags)
	var o outbox.RearmOptions
	flags.IntVar(&o.Limit, "limit", 0, "maximum number of events to re-arm (default: all)")
	flags.IntVar(&o.Canary, "canary", 0, "number of events to re-arm first")
	flags.DurationVar(&o.CanaryWait, "canary-wait", 0, "how long to wait for the canary (default 30s)")
	flags.Float64Var(&o.Rate, "rate", 0, "maximum events per second (default: no limit)")
	flags.IntVar(&o.MaxParkedAgain, "max-parked-again", 0, "stop when more events than this park again; -1: never stop")
	flags.StringVar(&o.Destination, "to", "", "publish the events to this destination instead")
	return func(ctx context.Context, s *session, ids []string) error {
		if err := c.choose(ctx, s, ids); err != nil {
			return err
		}
		return s.rearm(ctx, c, o)
	}
}

func (s *session) rearm(ctx context.Context, c *chosen, o outbox.RearmOptions) (err error) {
	if o.Before, err = s.cutoff(ctx); err != nil {
		return err
	}
	o.DryRun, o.Limit = s.preview, s.limit(o.Limit)
	count := s.progress("re-armed", int64(o.Limit))
	o.Progress = func(r outbox.RearmResult) {
		if o.DryRun {
			count.what = "found"
			count.set(int64(r.Matched))
			return
		}
		count.set(int64(r.Rearmed))
	}
	r, err := s.operator.Outbox().RearmAll(ctx, c.Filter, o)
	count.end()
	s.out.row(map[string]any{
		"operation": r.Operation, "dry_run": o.DryRun, "matched": r.Matched, "rearmed": r.Rearmed, "skipped": r.Skipped, "classes": r.Classes,
		"parked_again": r.ParkedAgain, "stopped": r.Stopped, "class": r.Class,
	}, "MATCHED RE-ARMED PARKED-AGAIN SKIPPED CLASSES", r.Matched, r.Rearmed, r.ParkedAgain, outcomes(r.Skipped), outcomes(r.Classes))
	switch {
	case err != nil:
		return err
	case s.preview:
		s.plan(r.Matched, "re-arm %s", counted(r.Matched, "event"))
		return nil
	case r.Stopped != "":
		return fmt.Errorf("stopped (%s): most failures are of class %q", r.Stopped, r.Class)
	}
	return c.incomplete("re-armed", r.Rearmed, o.Limit)
}

// outcomes formats counts with their names.
func outcomes[K ~string](counts map[K]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] > 0 {
			all = append(all, fmt.Sprintf("%s=%d", name, counts[name]))
		}
	}
	if len(all) == 0 {
		return "-"
	}
	return strings.Join(all, ",")
}

func discardFlags(flags *flag.FlagSet) action {
	c := chosenFlags(flags)
	return func(ctx context.Context, s *session, ids []string) error {
		if err := c.choose(ctx, s, ids); err != nil {
			return err
		}
		return s.discard(ctx, c)
	}
}

// discard counts the selected events, and removes them unless it is a preview.
func (s *session) discard(ctx context.Context, c *chosen) error {
	before, err := s.cutoff(ctx)
	if err != nil {
		return err
	}
	classes, matched, done := map[string]int{}, 0, 0
	count := s.progress("discarded", 0)
	defer count.end()
	failed := acts.Discarding{Filter: c.Filter, Reason: s.reason, DryRun: s.preview, Limit: s.limit(0), Before: before, Step: func(events []outbox.Event, answers outbox.Answers) {
		for _, e := range events {
			classes[e.Class]++
		}
		matched += len(events)
		done += answers.Done()
		count.add(answers.Done())
	}}.Run(ctx, s.operator.Outbox())
	s.out.row(map[string]any{"dry_run": s.preview, "matched": matched, "discarded": done, "classes": classes},
		"MATCHED DISCARDED CLASSES", matched, done, outcomes(classes))
	switch {
	case failed != nil:
		return failed
	case s.preview:
		s.plan(matched, "discard %s for good", counted(matched, "event"))
		return nil
	case done < matched:
		return fmt.Errorf("%d of %d were discarded; the others are no longer parked", done, matched)
	}
	return c.incomplete("discarded", done, 0)
}
