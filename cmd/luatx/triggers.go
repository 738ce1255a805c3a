package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"time"
)

var triggersVerb = verb{
	name: "triggers", needs: newService, short: "show the state and the lag of triggers, and the entries that they retry",
	long: `luatx triggers lists the triggers that are registered in the namespace, with their last reports: the state, the number of unread
entries (a lag of -1 is unknown), the entries in flight, the entries that wait for a retry, and the last error. luatx processes
trigger shows where they run.`,
	one: `if a trigger has died or is not ready`,
	flags: func(*flag.FlagSet) action {
		return func(ctx context.Context, s *session, _ []string) error { return s.triggers(ctx) }
	},
}

func (s *session) triggers(ctx context.Context) error {
	all, bad := 0, 0
	for p, err := range s.operator.Processes(ctx, "trigger") {
		if err != nil {
			return err
		}
		t := p.Trigger
		if t == nil {
			continue
		}
		state := t.State
		switch {
		case p.Dead:
			state = "dead"
		case t.Stalled:
			state += ", stalled"
		}
		if all++; p.Dead || !t.Ready {
			bad++
		}
		s.out.row(p, "FUNCTION STATE READY HOST LAG IN-FLIGHT RETRYING OLDEST-UNACKED FAILED DEAD-LETTERED LAST-ERROR", t.Function, state,
			t.Ready && !p.Dead, p.Host, t.Lag, p.InFlight, t.Retrying, t.OldestUnacked.Round(time.Millisecond), p.Counts["failed"], p.Counts["dead_lettered"],
			cmp.Or(cut(t.LastError), "-"))
	}
	if all == 0 {
		s.out.say("no trigger is registered; set trigger.Config.Namespace to register triggers")
	}
	if bad > 0 {
		return reportedError{fmt.Errorf("%d of %d triggers have died or are not ready", bad, all)}
	}
	return nil
}
