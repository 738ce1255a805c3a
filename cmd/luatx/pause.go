package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/luatx/luatx/admin"
)

var pauseVerbs = []verb{
	{
		name: "pause", args: "destination", changes: true, acts: true, reasoned: true, short: "stop relays from publishing to a destination",
		long: `luatx pause stops all relays of the service from publishing to a destination, until luatx resume or for a duration. Its events
stay in the outbox and use up no attempts. Events for other destinations are still published.`,
		flags: func(flags *flag.FlagSet) action {
			last := flags.Duration("for", 0, "duration of the pause (default: until luatx resume)")
			return func(ctx context.Context, s *session, names []string) error { return s.pause(ctx, names[0], *last) }
		},
	},
	{
		name: "paused", short: "list the paused destinations",
		flags: func(*flag.FlagSet) action {
			return func(ctx context.Context, s *session, _ []string) error { return s.paused(ctx) }
		},
	},
	{
		name: "resume", args: "destination", changes: true, acts: true, short: "let relays publish to a paused destination again",
		long: `luatx resume ends the pause of a destination. Relays publish its events within seconds.`,
		one:  `if the destination is not paused`,
		flags: func(*flag.FlagSet) action {
			return func(ctx context.Context, s *session, names []string) error { return s.resume(ctx, names[0]) }
		},
	},
}

func (s *session) pause(ctx context.Context, destination string, last time.Duration) error {
	if last < 0 {
		return usageError{errors.New("--for is not in the future; use a positive duration")}
	}
	var until time.Time
	if last > 0 {
		now, err := s.client.Time(ctx).Result()
		if err != nil {
			return err
		}
		until = now.Add(last)
	}
	if s.preview {
		how := "until it is resumed"
		if last > 0 {
			how = "for " + last.String()
		}
		s.plan(1, "pause %s %s", destination, how)
		return s.paused(ctx)
	}
	if err := s.operator.Pause(ctx, destination, s.reason, until); err != nil {
		return err
	}
	return s.paused(ctx)
}

// paused lists the paused destinations.
func (s *session) paused(ctx context.Context) error {
	paused, err := s.operator.Paused(ctx)
	if err != nil {
		return err
	}
	for _, p := range paused {
		s.out.pause(p)
	}
	if len(paused) == 0 {
		s.out.say("no destination is paused")
	}
	return nil
}

func (s *session) resume(ctx context.Context, destination string) error {
	paused, err := s.operator.Paused(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(paused, func(p admin.Pause) bool { return p.Destination == destination })
	if at < 0 {
		return fmt.Errorf("%q is not paused", destination)
	}
	if s.preview {
		s.out.pause(paused[at])
		s.plan(1, "resume %s", destination)
		return nil
	}
	if _, err := s.operator.Resume(ctx, destination); err != nil {
		return err
	}
	s.out.row(map[string]any{"destination": destination, "resumed": true}, "RESUMED", destination)
	return nil
}

func (p *printer) pause(one admin.Pause) {
	p.row(one, "PAUSED SINCE UNTIL WHO WHY", one.Destination, when(one.Since), when(one.Until), one.Who, cut(one.Why))
}
