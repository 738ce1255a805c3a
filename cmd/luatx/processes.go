package main

import (
	"cmp"
	"context"
	"flag"
	"strings"
	"time"

	"github.com/luatx/luatx/admin"
)

var processesVerb = verb{
	name: "processes", args: "[kind…]", needs: newService, short: "list the relays, consumers, triggers and workers that run, and those that died",
	long: `luatx processes lists the running relays, consumers, triggers and workers of the namespace: their host, their start, their last
heartbeat, and the leases or partitions that they hold. A process that died is listed as dead for an hour. The kinds are relay,
consumer, trigger, timers and repair; without a kind the command lists all. A process that has stopped in an orderly way, or that
does not register itself, is not listed.`,
	flags: func(*flag.FlagSet) action {
		return func(ctx context.Context, s *session, kinds []string) error { return s.processes(ctx, kinds) }
	},
}

func (s *session) processes(ctx context.Context, kinds []string) error {
	now, err := s.client.Time(ctx).Result()
	if err != nil {
		return err
	}
	n := 0
	for p, err := range s.operator.Processes(ctx, kinds...) {
		if err != nil {
			return err
		}
		n++
		state := "alive"
		if p.Dead {
			state = "dead"
		}
		s.out.row(p, "KIND STATE HOST PID VERSION SINCE HEARD WORKS-ON IN-FLIGHT HOLDS", p.Kind, state, p.Host, p.PID, p.Version, when(p.Since),
			max(0, now.Sub(p.Seen)).Round(time.Second), cmp.Or(p.WorksOn(), "-"), p.InFlight, cmp.Or(holds(p), "-"))
	}
	if n == 0 {
		s.out.say("no process is registered")
	}
	return nil
}

// holds describes the leases of a process.
func holds(p admin.Process) string {
	var all []string
	if p.Holding > 0 {
		all = append(all, counted(p.Holding, "partition"))
	}
	if len(p.Leases) > 0 {
		all = append(all, counted(len(p.Leases), "lease"))
	}
	return strings.Join(all, ", ")
}
