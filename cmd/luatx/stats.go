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
	"github.com/luatx/luatx/internal/sleep"
)

var statsVerb = verb{
	name: "stats", short: "show the number of events in each state, the oldest due event, and parked events by class",
	long: `luatx stats shows the number of events in each state, how long the oldest event has been due, the events per second while it
measured, the parked events by class, and the paused destinations. If OLDEST-DUE grows, no relay publishes. OLDEST-UNPUBLISHED also
includes events that wait behind a parked event of their ordering key, and events that relays retry.`,
	flags: func(flags *flag.FlagSet) action {
		over := flags.Duration("over", time.Second, "how long to measure rates; 0: do not measure")
		top := flags.Int("top", 10, "maximum number of failure classes to list")
		return func(ctx context.Context, s *session, _ []string) error { return s.stats(ctx, *over, *top) }
	},
}

type statsRow struct {
	Pending     int64            `json:"pending"`
	Leased      int64            `json:"leased"`
	Waiting     int64            `json:"waiting"`
	Parked      int64            `json:"parked"`
	Sent        int64            `json:"sent"`
	Bytes       int64            `json:"bytes"`
	Oldest      float64          `json:"oldest_due_seconds"`
	Unpublished float64          `json:"oldest_unpublished_seconds"`
	Blocked     admin.Blocked    `json:"blocked"`
	Rates       *admin.Rates     `json:"rates,omitempty"`
	Top         []admin.Reason   `json:"top,omitempty"`
	Destination map[string]int64 `json:"parked_by_destination,omitempty"`
	Paused      []admin.Pause    `json:"paused,omitempty"`
}

func (s *session) stats(ctx context.Context, over time.Duration, top int) error {
	now, err := s.operator.Stats(ctx)
	if err != nil {
		return err
	}
	var rates *admin.Rates
	if over > 0 {
		if !sleep.For(ctx, over) {
			return ctx.Err()
		}
		before := now
		if now, err = s.operator.Stats(ctx); err != nil {
			return err
		}
		measured := now.Rates(before)
		rates = &measured
	}
	c := now.Counts
	if s.json {
		s.out.row(statsRow{
			c.Pending, c.Leased, c.Waiting, c.Parked, c.Sent, c.Bytes, now.Oldest.Seconds(), now.OldestUnpublished.Seconds(), now.Blocked, rates,
			now.Top(top), now.Parked.ByDestination, now.Paused,
		}, "")
		return nil
	}
	s.out.row(nil, "PENDING LEASED WAITING PARKED SENT BYTES OLDEST-DUE OLDEST-UNPUBLISHED",
		c.Pending, c.Leased, c.Waiting, c.Parked, c.Sent, c.Bytes, now.Oldest.Round(time.Millisecond), now.OldestUnpublished.Round(time.Millisecond))
	if rates != nil {
		s.out.section("per second:")
		s.out.row(nil, "ENQUEUED SENT FAILED PARKED", figure(rates.Enqueued), figure(rates.Sent), figure(rates.Failed), figure(rates.Parked))
	}
	if now.Blocked.Keys > 0 {
		s.out.section("behind parked events of their ordering key (see luatx blocked):")
		s.out.row(nil, "KEYS EVENTS SINCE", atLeast(now.Blocked.Keys, now.Blocked.More), atLeast(now.Blocked.Events, now.Blocked.More), when(now.Blocked.Since))
	}
	if reasons := now.Top(top); len(reasons) > 0 {
		s.out.section("parked, by class:")
		for _, r := range reasons {
			s.out.row(nil, "EVENTS CLASS", r.Events, r.Class)
		}
		s.out.section("parked, by destination:")
		for _, name := range slices.Sorted(maps.Keys(now.Parked.ByDestination)) {
			if n := now.Parked.ByDestination[name]; n > 0 {
				s.out.row(nil, "EVENTS DESTINATION", n, name)
			}
		}
	}
	if len(now.Paused) > 0 {
		s.out.section("paused:")
		for _, p := range now.Paused {
			s.out.pause(p)
		}
	}
	return nil
}

// atLeast formats a number that may be incomplete.
func atLeast(n int64, more bool) string {
	if more {
		return fmt.Sprintf("%d+", n)
	}
	return fmt.Sprint(n)
}

func figure(f float64) string { return fmt.Sprintf("%.1f", f) }

var drainVerb = verb{
	name: "drain", args: "[stream…]", short: "show the work that is left before you can change the keyspace",
	long: `luatx drain shows the work that is left in the shards of a keyspace and in the given input streams. If the partitions have streams of
a given name, the name stands for all of them.

Before you change the number of partitions, or between partitions and own tags, stop new input and wait until nothing is left.
Dead letters are not counted: retry or discard those of partitioned streams. Then use another namespace for the new keyspace,
because drained shards still refuse commits of other keyspaces.`,
	one: `if work is left, or a stream does not exist`,
	flags: func(*flag.FlagSet) action {
		return func(ctx context.Context, s *session, keys []string) error {
			shards, streams, err := s.operator.Drain(ctx, keys...)
			if err != nil {
				return err
			}
			for _, l := range shards {
				s.out.row(l, "SLOT PENDING LEASED WAITING PARKED NEXT-TIMER", l.Slot, l.Pending, l.Leased, l.Waiting, l.Parked, when(l.Timer))
			}
			if len(streams) > 0 {
				s.out.section("streams:")
			}
			for _, state := range streams {
				s.streamRows(state)
			}
			if len(shards) == 0 && len(streams) == 0 {
				s.out.say("nothing is left")
				return nil
			}
			return reportedError{fmt.Errorf("%d shards and %d streams have work left", len(shards), len(streams))}
		}
	},
}

var streamsVerb = verb{
	name: "streams", args: "stream…", needs: aServer, short: "show the groups of streams, their lag, pending entries by consumer, and dead letters",
	long: `luatx streams shows streams by their keys: the groups that read them, the lag of each group, the pending entries of each consumer,
and the number of dead letters. A lag of -1 is unknown. The name of a partitioned stream stands for the streams of all partitions of
the keyspace.`,
	one: `if a stream does not exist`,
	flags: func(*flag.FlagSet) action {
		return func(ctx context.Context, s *session, names []string) error {
			var missing []error
			for state, err := range s.operator.Streams(ctx, names...) {
				switch {
				case err != nil:
					return err
				case state.Missing:
					missing = append(missing, fmt.Errorf("no stream has the key %q, and no partition of %s has one of that name", state.Key, s.space))
				default:
					s.streamRows(state)
				}
			}
			return errors.Join(missing...)
		}
	},
}

func (s *session) streamRows(state admin.StreamState) {
	if s.json {
		s.out.row(state, "")
		return
	}
	const columns = "STREAM LENGTH DEAD GROUP LAG PENDING OLDEST CONSUMER ITS-PENDING IDLE"
	if len(state.Groups) == 0 {
		s.out.row(nil, columns, state.Key, state.Length, state.DeadLetters, "-", "-", "-", "-", "-", "-", "-")
	}
	for _, g := range state.Groups {
		consumers := g.Consumers
		if len(consumers) == 0 {
			consumers = []admin.Consumer{{Name: "-"}}
		}
		for _, c := range consumers {
			s.out.row(nil, columns, state.Key, state.Length, state.DeadLetters, g.Name, g.Lag, g.Pending, cmp.Or(g.Oldest, "-"), c.Name, c.Pending, c.Idle)
		}
	}
}
