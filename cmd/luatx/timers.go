package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/luatx/luatx/admin"
)

var timerVerbs = []verb{
	{
		name: "timers stats", short: "show the number of open, due and decided timers, and how long the oldest one has been due",
		long: `luatx timers stats shows how many timers of package expiry are open, how many of these are due, how many decisions (fired or
revoked) are stored, and how long the longest-overdue timer has been due. If that time grows, no worker decides timers.`,
		flags: func(*flag.FlagSet) action {
			return func(ctx context.Context, s *session, _ []string) error { return s.timerStats(ctx) }
		},
	},
	{
		name: "timers list", short: "list open timers by due time, or decided timers",
		flags: func(flags *flag.FlagSet) action {
			f := new(admin.TimerFilter)
			flags.BoolVar(&f.Decided, "decided", false, "timers that fired or were revoked, while their decision is stored")
			flags.BoolVar(&f.Due, "due", false, "open timers that are due")
			flags.StringVar(&f.Text, "text", "", "timers whose subject contains this text")
			slotFlag(flags, "timers", &f.Slots)
			flags.StringVar(&f.After, "after", "", "`cursor` that the previous list ended with; use the same other flags")
			limit := flags.Int("limit", 100, "maximum number of timers to list; 0 lists all")
			return func(ctx context.Context, s *session, _ []string) error { return s.timers(ctx, *f, *limit) }
		},
	},
	{
		name: "timers show", args: "subject…", short: "show the open or revoked timers of subjects",
		one: `if no shard has an open or revoked timer of one of the subjects`,
		flags: func(*flag.FlagSet) action {
			return func(ctx context.Context, s *session, subjects []string) error { return s.timersOf(ctx, subjects) }
		},
	},
}

func (s *session) timerStats(ctx context.Context) error {
	t, err := s.operator.TimerStats(ctx)
	if err != nil {
		return err
	}
	s.out.row(t, "OPEN DUE DECIDED OVERDUE NEXT", t.Open, t.Due, t.Decided, t.Overdue.Round(time.Millisecond), when(t.Next))
	return nil
}

func (s *session) timers(ctx context.Context, f admin.TimerFilter, limit int) error {
	n, last := 0, admin.Timer{}
	for t, err := range s.operator.Timers(ctx, f) {
		if err != nil {
			return err
		}
		if n++; limit > 0 && n > limit {
			s.out.say("there are more; --after %s lists the next ones, --limit 0 lists all", last.Cursor())
			break
		}
		s.out.timer(t)
		last = t
	}
	if n == 0 {
		s.out.say("no timer matches")
	}
	return nil
}

func (s *session) timersOf(ctx context.Context, subjects []string) error {
	var missing []error
	for _, subject := range subjects {
		found, err := s.operator.Timer(ctx, subject)
		if errors.Is(err, admin.ErrTimerNotFound) {
			missing = append(missing, fmt.Errorf("no shard has an open or revoked timer of %q; timers list --decided has those that fired", subject))
			continue
		}
		if err != nil {
			return err
		}
		for _, t := range found {
			s.out.timer(t)
		}
	}
	return errors.Join(missing...)
}

func (p *printer) timer(t admin.Timer) {
	row := struct {
		admin.Timer

		Cursor string `json:"cursor"`
	}{t, t.Cursor()}
	p.row(row, "SLOT SUBJECT STATE DUE DECIDED", t.Slot, t.Subject, t.State, when(t.Due), when(t.Decided))
}
