package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/luatx/luatx/internal/shard"
)

// ReplayOptions say how Replay goes about it. The zero value replays all at once.
type ReplayOptions struct {
	// Limit is the most events to replay. Defaults to 0: all.
	Limit int
	// DryRun counts what would be replayed, and changes nothing.
	DryRun bool
	// Rate is how many events a second are replayed at most. Defaults to 0: as fast as it goes.
	Rate float64
}

// ReplayResult is what Replay has done.
type ReplayResult struct {
	// Operation is its id in the audit.
	Operation string
	// Matched is how many events the filter meant; Replayed how many of them go out again.
	Matched, Replayed int
	// Skipped is how many do not, by what they were found to be: NoBody where bodies were not kept.
	Skipped map[Outcome]int
	// Stopped is why it ended before all were replayed; empty: it did not.
	Stopped Stop
}

// Replay publishes sent events again, those that were sent since a time and before Replay began and that the filter means:
// they go back into pending with the ids they had, for consumers that know these to skip them. It takes
// relay.Config.KeepSentBodies, and reaches back as far as SentRetention does. The first sent of each shard go first; lanes
// are not restored. Beside an error, and where it stopped, the result tells what was done. The store must name who acts:
// see As.
func (s *Store) Replay(ctx context.Context, since time.Time, f Filter, opts ReplayOptions) (ReplayResult, error) {
	if opts.Limit < 0 || opts.Rate < 0 {
		return ReplayResult{}, fmt.Errorf("outbox: ReplayOptions.Limit %d, Rate %v: use 0 for the default, or more", opts.Limit, opts.Rate)
	}
	why := "since " + since.UTC().Format(time.RFC3339) + ": " + f.String()
	o, err := s.begin(why[:min(len(why), maxReason)])
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
	c := campaign{ground: g, opts: RearmOptions{Limit: opts.Limit, DryRun: opts.DryRun, Rate: opts.Rate, MaxParkedAgain: -1}}
	err = c.run(ctx)
	return ReplayResult{o.act.Operation, c.result.Matched, c.result.Rearmed, c.result.Skipped, c.result.Stopped}, err
}

// sentGround is what a campaign works on: sent events of a store. It does not look back.
type sentGround struct {
	*operation

	filter  Filter
	since   time.Time
	edges   []shard.Edge
	cutoffs map[int]time.Time // of each slot: when its last event had been sent
}

func (g *sentGround) each(ctx context.Context, yield func(Event, error) bool) {
	of := shard.Listing{
		Of: "sent", Only: "s", Bodies: g.filter.needsBodies(),
		After: shard.Place{Score: fmt.Sprint(g.since.UnixMilli() - 1), Member: behindAll},
	}
	g.store.matching(ctx, g.filter, of, g.edges)(func(e Event, err error) bool {
		early := err == nil && e.At.Before(g.since.Truncate(time.Millisecond)) // as ids are found
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
