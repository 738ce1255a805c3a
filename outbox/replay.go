package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/luatx/luatx/internal/shard"
)

// ReplayOptions configure Replay. The zero value replays all events at once.
type ReplayOptions struct {
	// Limit is the maximum number of events to replay. Defaults to 0: all.
	Limit int
	// DryRun counts the events that would be replayed, and changes nothing.
	DryRun bool
	// Rate is the maximum number of events to replay per second. Defaults to 0: no limit.
	Rate float64
}

// ReplayResult is the result of Replay.
type ReplayResult struct {
	// Operation is the id of the operation in the audit.
	Operation string
	// Matched is the number of events that the filter selected. Replayed is the number of them that are published again.
	Matched, Replayed int
	// Skipped counts the other events by outcome, such as NoBody if bodies were not kept.
	Skipped map[Outcome]int
	// Stopped is why the operation ended before all events were replayed. It is empty if it did not.
	Stopped Stop
}

// Replay publishes again the sent events that the filter selects and that were sent after since and before Replay began. They
// become pending with their previous ids, so that consumers can skip those that they know. Replay requires
// relay.Config.KeepSentBodies and reaches back as far as SentRetention. The events that were sent first in each shard come first;
// lanes are not restored. If Replay stops or returns an error, the result states what was done. The store must have an operator;
// see As.
func (s *Store) Replay(ctx context.Context, since time.Time, f Filter, opts ReplayOptions) (ReplayResult, error) {
	if opts.Limit < 0 || opts.Rate < 0 {
		return ReplayResult{}, fmt.Errorf("outbox: ReplayOptions.Limit is %d and Rate %v; use 0 for the default, or more", opts.Limit, opts.Rate)
	}
	why := "since " + since.UTC().Format(time.RFC3339) + ": " + f.String()
	o, err := s.begin(brief(why))
	if err != nil {
		return ReplayResult{}, err
	}
	edges, err := s.edges("replay", f, func(slots []int) ([]shard.Edge, error) { return s.scripts.LastSent(ctx, slots) })
	if err != nil {
		return ReplayResult{}, err
	}
	g := &sentGround{operation: o, filter: f, since: since, edges: edges, cutoffs: map[int]time.Time{}}
	for _, edge := range edges {
		g.cutoffs[edge.Slot] = edge.At
	}
	c := bulk{ground: g, opts: RearmOptions{Limit: opts.Limit, DryRun: opts.DryRun, Rate: opts.Rate, MaxParkedAgain: -1}}
	err = c.run(ctx)
	return ReplayResult{o.act.Operation, c.result.Matched, c.result.Rearmed, c.result.Skipped, c.result.Stopped}, err
}

// sentGround provides the sent events of a store to a bulk operation. It does not poll their fate.
type sentGround struct {
	*operation

	filter  Filter
	since   time.Time
	edges   []shard.Edge
	cutoffs map[int]time.Time // by slot: when the last event had been sent at the start
}

func (g *sentGround) each(ctx context.Context, yield func(Event, error) bool) {
	of := shard.Listing{
		Of: "sent", Only: "s", Bodies: g.filter.needsBodies(),
		After: shard.Place{Score: fmt.Sprint(g.since.UnixMilli() - 1), Member: behindAll},
	}
	g.store.matching(ctx, g.filter, of, g.edges)(func(e Event, err error) bool {
		early := err == nil && e.At.Before(g.since.Truncate(time.Millisecond)) // a listing by ids ignores since
		return early || yield(e, err)
	})
}

func (g *sentGround) rearm(ctx context.Context, n int, ids []string) (Answers, error) {
	return g.call(ctx, "replay", n, ids, func(ctx context.Context, shard shard.Shard, act shard.Act, ids []string) (string, error) {
		return g.store.scripts.Replay(ctx, shard, act, g.cutoffs[n], ids)
	})
}

func (g *sentGround) look(context.Context, int, []string) ([]Event, error) { return nil, nil }

func (g *sentGround) failures(context.Context, int) ([]Event, error) { return nil, nil }
