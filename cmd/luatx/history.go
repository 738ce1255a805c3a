package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/internal/acts"
)

var historyVerb = verb{
	name: "history", needs: newService, short: "show past events by destination and outcome, failures by class, and the age and size of the outbox",
	long: `luatx history prints the history of a part of the last 30 days. The default is the last hour. --since and --until select another
part, and --at selects the hour around a time. The command prints a row for each interval with records, then totals by destination
and by class of failure. With --by destination or --by class it prints a row for each destination or class in each interval.

A row has the events per second and the highest measurements of the interval: the age of the oldest unpublished event, the events
and bytes of the outbox, the parked events, the events that wait behind them, and the usage of the fullest shard. Failed and
returned events are retried. Returned events have not used up an attempt. Intervals last 10 seconds in the last hour, and 15
minutes before that.

A time is a duration before now such as 24h, a time of the last 24 hours such as 03:00 or 03:00+02:00, or a date and a time such
as 2006-01-02T15:04:05Z. Times without a zone, and all times of the output, are in UTC.`,
	flags: func(flags *flag.FlagSet) action {
		var o historyOptions
		flags.StringVar(&o.at, "at", "", "show the hour around this `time`, such as 03:00")
		flags.StringVar(&o.since, "since", "", "start `time`, such as 24h (default: 1h before --until)")
		flags.StringVar(&o.until, "until", "", "end `time` (default: now)")
		flags.DurationVar(&o.step, "step", 0, "length of the intervals, a multiple of 10s in the last hour or else of 15m (default: the shortest)")
		flags.StringVar(&o.by, "by", "", "rows by outcome, destination or class (default: outcome, with totals by the others)")
		return func(ctx context.Context, s *session, _ []string) error { return s.history(ctx, o) }
	},
}

type historyOptions struct {
	at, since, until, by string
	step                 time.Duration
}

// aroundAt is how much of the history --at prints before and after its time.
const aroundAt = 30 * time.Minute

// part returns the part of the history that is meant.
func (o historyOptions) part(now time.Time) (r admin.HistoryRange, err error) {
	switch {
	case o.at != "" && (o.since != "" || o.until != ""):
		return r, errors.New("--at excludes --since and --until; use --at alone for the hour around a time")
	case o.step < 0:
		return r, fmt.Errorf("--step is %v; use a duration such as 15m or 1h", o.step)
	case o.by != "" && !slices.Contains([]string{"outcome", "destination", "class"}, o.by):
		return r, fmt.Errorf("--by is %s; use outcome, destination or class", o.by)
	}
	r.Step = o.step
	var at time.Time
	for _, flag := range []struct {
		name, text string
		into       *time.Time
	}{{"at", o.at, &at}, {"since", o.since, &r.Since}, {"until", o.until, &r.Until}} {
		if flag.text == "" {
			continue
		}
		if *flag.into, err = acts.Moment(flag.text, now); err != nil {
			return r, fmt.Errorf("--%s: %w", flag.name, err)
		}
	}
	if !at.IsZero() {
		r.Since, r.Until = at.Add(-aroundAt), at.Add(aroundAt)
	}
	return r, nil
}

func (s *session) history(ctx context.Context, o historyOptions) error {
	now, err := s.client.Time(ctx).Result()
	if err != nil {
		return err
	}
	part, err := o.part(now)
	if err != nil {
		return usageError{err}
	}
	h, err := s.operator.History(ctx, part)
	if err != nil {
		return err
	}
	if s.json {
		s.out.row(h, "")
		return nil
	}
	if len(h.Intervals) == 0 {
		s.out.say("no history from %s to %s; no relay, repair worker or console was running, or recording is turned off", when(h.Since), when(h.Until))
		return nil
	}
	switch o.by {
	case "destination":
		s.historyByDestination(h.Intervals)
	case "class":
		s.historyByClass(h.Intervals)
	default:
		for _, i := range h.Intervals {
			s.historyRow(i)
		}
	}
	if o.by == "" {
		s.out.section("events by destination:")
		s.historyByDestination([]admin.HistoryInterval{h.Total})
		if len(h.Total.Classes) > 0 {
			s.out.section("failures by class:")
			s.historyByClass([]admin.HistoryInterval{h.Total})
		}
	}
	return nil
}

func (s *session) historyRow(i admin.HistoryInterval) {
	rate := func(n int64) string { return figure(float64(n) / i.Duration.Seconds()) }
	row := []any{when(i.At), "-", rate(i.Outcomes.Sent), rate(i.Outcomes.Failed), rate(i.Outcomes.Returned), rate(i.Outcomes.Parked), "-", "-", "-", "-", "-", "-"}
	if m := i.Measured; m != nil {
		row[1] = figure(m.Enqueued)
		copy(row[6:], []any{m.Oldest.Round(time.Second), m.Events, m.Bytes, m.Parked, m.Blocked, fmt.Sprintf("%d%%", m.Full)})
	}
	s.out.row(nil, "FROM ENQUEUED/S SENT/S FAILED/S RETURNED/S PARKED/S OLDEST EVENTS BYTES PARKED BEHIND FULL", row...)
}

// others names what an interval does not name.
const others = "(others)"

func (s *session) historyByDestination(intervals []admin.HistoryInterval) {
	row := func(i admin.HistoryInterval, name string, o admin.Outcomes) {
		s.out.row(nil, "FROM DESTINATION SENT FAILED RETURNED PARKED", when(i.At), name, o.Sent, o.Failed, o.Returned, o.Parked)
	}
	for _, i := range intervals {
		for _, name := range slices.Sorted(maps.Keys(i.Destinations)) {
			row(i, cmp.Or(name, "-"), i.Destinations[name])
		}
		if i.Others != (admin.Outcomes{}) {
			row(i, others, i.Others)
		}
	}
}

func (s *session) historyByClass(intervals []admin.HistoryInterval) {
	for _, i := range intervals {
		for _, class := range slices.Sorted(maps.Keys(i.Classes)) {
			s.out.row(nil, "FROM CLASS FAILURES", when(i.At), cmp.Or(class, "-"), i.Classes[class])
		}
		if i.OtherFailures > 0 {
			s.out.row(nil, "FROM CLASS FAILURES", when(i.At), others, i.OtherFailures)
		}
	}
}
