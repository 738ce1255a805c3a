package main

import (
	"context"
	"flag"

	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/outbox"
)

var blockedVerb = verb{
	name: "blocked", short: "list ordering keys whose events wait behind a parked event, longest blocked first",
	long: `luatx blocked lists the parked events that hold back others of their ordering key, with the number of events that wait
behind each, and since when. The filter selects parked events. After you re-arm or discard a parked event, relays publish the
events behind it; see luatx help parked.`,
	flags: func(flags *flag.FlagSet) action {
		f := filterFlags(flags, new(outbox.Filter))
		limit := flags.Int("limit", 100, "maximum number of keys to list; 0 lists all")
		return func(ctx context.Context, s *session, _ []string) error { return s.blocked(ctx, *f, *limit) }
	},
}

func (s *session) blocked(ctx context.Context, f outbox.Filter, limit int) error {
	n := 0
	for e, err := range s.operator.Outbox().Blocked(ctx, f) {
		if err != nil && e.ID == "" {
			return err
		}
		if n++; limit > 0 && n > limit {
			s.out.say("there are more; --limit 0 lists all")
			break
		}
		row := acts.NewEvent(e)
		s.out.row(row, "SLOT ID KEY SINCE HOLDS-BACK DESTINATION TYPE CLASS ERROR",
			row.Slot, row.ID, row.Key, when(row.At), row.HoldsBack, row.Destination, row.Type, row.Class, cut(row.Error))
	}
	if n == 0 {
		s.out.say("no ordering key is blocked")
	}
	return nil
}
