package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/luatx/luatx/admin"
)

var pauseVerbs = []verb{
	{
		name: "pause", args: "[destination]", acts: true, short: "keep relays from publishing to a destination",
		long: `luatx pause keeps all relays of the service from publishing to a destination, until luatx resume or for a time. Its events
stay in the outbox and lose no attempt; those of other destinations go on. Without a destination it lists what is paused.`,
		flags: func(flags *flag.FlagSet) action {
			reason := flags.String("reason", "", "why, for the audit; required")
			last := flags.Duration("for", 0, "for how long (default until it is resumed)")
			return func(ctx context.Context, s *session, names []string) error {
				return s.pause(ctx, names, *reason, *last)
			}
		},
	},
	{
		name: "resume", args: "destination", acts: true, short: "let relays publish to a paused destination again",
		long: `luatx resume ends the pause of a destination: what waited for it goes out within seconds. The exit status is 1 where it
is not paused.`,
		flags: func(*flag.FlagSet) action {
			return func(ctx context.Context, s *session, names []string) error { return s.resume(ctx, names) }
		},
	},
}

func (s *session) pause(ctx context.Context, names []string, reason string, last time.Duration) error {
	switch {
	case len(names) > 1:
		return usageError{errors.New("name one destination")}
	case len(names) == 1 && reason == "":
		return usageError{errors.New("--reason: say why, it is recorded")}
	case last < 0:
		return usageError{errors.New("--for: say a time to come")}
	case len(names) == 1:
		var until time.Time
		if last > 0 {
			now, err := s.client.Time(ctx).Result()
			if err != nil {
				return err
			}
			until = now.Add(last)
		}
		if err := s.operator.Pause(ctx, names[0], reason, until); err != nil {
			return err
		}
	}
	paused, err := s.operator.Paused(ctx)
	if err != nil {
		return err
	}
	for _, p := range paused {
		s.out.pause(p)
	}
	if len(paused) == 0 {
		s.out.say("nothing is paused")
	}
	return nil
}

func (s *session) resume(ctx context.Context, names []string) error {
	if len(names) != 1 {
		return usageError{errors.New("name one destination")}
	}
	was, err := s.operator.Resume(ctx, names[0])
	if err != nil {
		return err
	}
	if !was {
		return fmt.Errorf("%q is not paused", names[0])
	}
	s.out.row(map[string]any{"destination": names[0], "resumed": true}, "RESUMED", names[0])
	return nil
}

func (p *printer) pause(one admin.Pause) {
	p.row(one, "PAUSED SINCE UNTIL WHO WHY", one.Destination, when(one.Since), when(one.Until), one.Who, cut(one.Why))
}
