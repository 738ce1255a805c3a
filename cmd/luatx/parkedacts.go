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

func rearmFlags(flags *flag.FlagSet) action {
	f := filterFlags(flags)
	var o outbox.RearmOptions
	flags.IntVar(&o.Limit, "limit", 0, "the most events to re-arm (default all)")
	flags.IntVar(&o.Canary, "canary", 0, "how many go first")
	flags.DurationVar(&o.CanaryWait, "canary-wait", 0, "how long their fate is waited for (default 30s)")
	flags.Float64Var(&o.Rate, "rate", 0, "the most events a second (default as fast as it goes)")
	flags.IntVar(&o.MaxParkedAgain, "max-parked-again", 0, "how many may park again before it stops; -1: any number")
	flags.StringVar(&o.Destination, "to", "", "publish them to this destination instead")
	yes := flags.Bool("yes", false, "re-arm what the filter means; without it they are counted")
	return func(ctx context.Context, s *session, ids []string) error {
		f.IDs = ids
		o.DryRun = len(ids) == 0 && !*yes
		return s.rearm(ctx, *f, o)
	}
}

func (s *session) rearm(ctx context.Context, f outbox.Filter, o outbox.RearmOptions) error {
	count := s.progress("re-armed", int64(o.Limit))
	o.Progress = func(r outbox.RearmResult) {
		if o.DryRun {
			count.what = "found"
			count.set(int64(r.Matched))
			return
		}
		count.set(int64(r.Rearmed))
	}
	r, err := s.operator.Outbox().RearmAll(ctx, f, o)
	count.end()
	s.out.row(map[string]any{
		"operation": r.Operation, "dry_run": o.DryRun, "matched": r.Matched, "rearmed": r.Rearmed, "skipped": r.Skipped, "classes": r.Classes,
		"parked_again": r.ParkedAgain, "stopped": r.Stopped, "class": r.Class,
	}, "MATCHED RE-ARMED PARKED-AGAIN SKIPPED CLASSES", r.Matched, r.Rearmed, r.ParkedAgain, outcomes(r.Skipped), outcomes(r.Classes))
	switch {
	case err != nil:
		return err
	case o.DryRun:
		return errYes
	case r.Stopped != "":
		return fmt.Errorf("stopped (%s): most failures are of class %q", r.Stopped, r.Class)
	case len(f.IDs) > r.Rearmed:
		return fmt.Errorf("%d of %d were re-armed: the others are not parked here", r.Rearmed, len(f.IDs))
	}
	return nil
}

// outcomes tells counts by what they count.
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
	f := filterFlags(flags)
	reason := flags.String("reason", "", "why, for the audit; required")
	all := flags.Bool("all", false, "mean all parked events, where neither ids nor a filter are given")
	yes := flags.Bool("yes", false, "discard them; without it they are counted")
	return func(ctx context.Context, s *session, ids []string) error {
		f.IDs = ids
		switch {
		case *reason == "":
			return usageError{errors.New("--reason: say why, it is recorded")}
		case f.String() == "all" && !*all:
			return usageError{errors.New("name ids or a filter; --all means all parked events")}
		}
		return s.discard(ctx, *f, *reason, *yes)
	}
}

// discard counts what the filter means, and removes it where that is confirmed.
func (s *session) discard(ctx context.Context, f outbox.Filter, reason string, yes bool) error {
	classes, matched, done := map[string]int{}, 0, 0
	count := s.progress("discarded", 0)
	defer count.end()
	failed := acts.Discarding{Filter: f, Reason: reason, DryRun: !yes, Step: func(events []outbox.Event, answers outbox.Answers) {
		for _, e := range events {
			classes[e.Class]++
		}
		matched += len(events)
		done += answers.Done()
		count.add(answers.Done())
	}}.Run(ctx, s.operator.Outbox())
	s.out.row(map[string]any{"dry_run": !yes, "matched": matched, "discarded": done, "classes": classes},
		"MATCHED DISCARDED CLASSES", matched, done, outcomes(classes))
	switch {
	case failed != nil:
		return failed
	case !yes:
		return errYes
	case done < matched || done < len(f.IDs):
		return fmt.Errorf("%d of %d were discarded: the others are not parked here", done, max(matched, len(f.IDs)))
	}
	return nil
}
