package outbox

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/shard"
)

// noCutoff re-arms whenever an event was parked.
var noCutoff time.Time

// RearmOptions say how RearmAll goes about it. The zero value re-arms all at once, unless one of them parks again.
type RearmOptions struct {
	// Limit is the most events to re-arm. Defaults to 0: all.
	Limit int
	// DryRun counts what would be re-armed, and changes nothing.
	DryRun bool
	// Canary is how many go first. The others follow when those were sent, but for MaxParkedAgain of them. Defaults to 0.
	Canary int
	// CanaryWait is how long their fate is waited for. Defaults to 30 seconds.
	CanaryWait time.Duration
	// Rate is how many events a second are re-armed after the canary, at most. Defaults to 0: as fast as it goes.
	Rate float64
	// MaxParkedAgain is how many of the re-armed events may park again; one more ends the operation. Negative: any number.
	// Defaults to 0.
	MaxParkedAgain int
	// Destination is where they are published instead of where their bodies say, if Store.WithDestinations allows it.
	// Defaults to none.
	Destination string
	// Progress is told now and then how far it is, in the goroutine of the operation. Defaults to nil: nobody is.
	Progress func(RearmResult)
}

func (o RearmOptions) withDefaults() RearmOptions {
	o.CanaryWait = cmp.Or(o.CanaryWait, 30*time.Second)
	return o
}

// Validate says what of the options RearmAll would refuse.
func (o RearmOptions) Validate() error {
	switch {
	case o.Limit < 0 || o.Canary < 0 || o.CanaryWait < 0 || o.Rate < 0:
		return fmt.Errorf("outbox: RearmOptions.Limit %d, Canary %d, CanaryWait %v, Rate %v: use 0 for the default, or more",
			o.Limit, o.Canary, o.CanaryWait, o.Rate)
	case o.Canary > maxCanary:
		return fmt.Errorf("outbox: RearmOptions.Canary is %d: use at most %d", o.Canary, maxCanary)
	case strings.ContainsAny(o.Destination, "\r\n"):
		return fmt.Errorf("outbox: RearmOptions.Destination %.80q: use one line", o.Destination)
	}
	return nil
}

// RearmResult is what RearmAll has done.
type RearmResult struct {
	// Operation is its id in the audit.
	Operation string
	// Matched is how many events the filter meant, as far as it came; Rearmed how many of them are re-armed.
	Matched, Rearmed int
	// Skipped is how many were not, by what they were found to be: parked anew meanwhile (Newer), erased (NoBody) ….
	Skipped map[Outcome]int
	// Classes counts by class what was matched in a dry run, else what has parked again.
	Classes map[string]int
	// Canary is the fate of those that went first.
	Canary Canary
	// ParkedAgain is how many of the re-armed events have parked again, as far as it looked.
	ParkedAgain int
	// Stopped is why it ended before all were re-armed; empty: it did not.
	Stopped Stop
	// Class is the one that most failures had, where they stopped it.
	Class string
}

// Canary is what became of the events that went first.
type Canary struct {
	// Sent is how many were published, ParkedAgain how many were parked again; of Trying neither was known in time.
	Sent, ParkedAgain, Trying int
}

// Stop is why an operation ended early.
type Stop string

// The reasons to stop.
const (
	// StoppedByCanary: more than MaxParkedAgain of the first were not sent in time.
	StoppedByCanary Stop = "canary"
	// StoppedByFailures: more than MaxParkedAgain events parked again.
	StoppedByFailures Stop = "parked again"
	// StoppedFull: a shard's outbox has no room for more. Use a rate, and go on later.
	StoppedFull Stop = "full"
)

// RearmAll re-arms the parked events that a filter means, as they are now: what is parked meanwhile, or again, is left
// alone, also where it has waited long. Erased ones are skipped and counted. The oldest of each shard go first. Beside an
// error, and where it stopped, the result tells what was done. The store must name who acts: see As.
func (s *Store) RearmAll(ctx context.Context, f Filter, opts RearmOptions) (RearmResult, error) {
	if err := cmp.Or(opts.Validate(), s.CheckDestination(opts.Destination)); err != nil {
		return RearmResult{}, err
	}
	opts = opts.withDefaults()
	why := f.String()
	o, err := s.begin(why[:min(len(why), maxReason)])
	if err != nil {
		return RearmResult{}, err
	}
	edges, err := s.edges("re-arm", f, func(slots []int) ([]shard.Edge, error) { return s.scripts.LastParked(ctx, slots) })
	if err != nil {
		return RearmResult{}, err
	}
	g := &parkedGround{operation: o, filter: f, destination: opts.Destination, edges: edges, cutoffs: map[int]time.Time{}, seen: map[int]shard.Place{}}
	for _, edge := range edges {
		g.cutoffs[edge.Slot] = edge.At
		g.seen[edge.Slot] = shard.Place{Score: fmt.Sprint(edge.At.UnixMilli()), Member: behindAll}
	}
	c := campaign{ground: g, opts: opts}
	err = c.run(ctx)
	c.result.Operation = o.act.Operation
	return c.result, err
}

// behindAll is behind every id of one time.
const behindAll = "\xff\xff\xff\xff"

// parkedGround is what a campaign works on: parked events of a store.
type parkedGround struct {
	*operation

	filter      Filter
	destination string
	edges       []shard.Edge
	cutoffs     map[int]time.Time   // of each slot: when its last event had been parked
	seen        map[int]shard.Place // of each slot: how far failures have been looked at
}

func (g *parkedGround) each(ctx context.Context, yield func(Event, error) bool) {
	of := shard.Listing{Of: "parked", Only: "k", Bodies: g.filter.needsBodies()}
	g.store.matching(ctx, g.filter, of, g.edges)(yield)
}

func (g *parkedGround) rearm(ctx context.Context, n int, ids []string) (Answers, error) {
	return g.call(ctx, "re-arm", n, ids, func(ctx context.Context, shard shard.Shard, act shard.Act, ids []string) (string, error) {
		return g.store.scripts.Rearm(ctx, shard, act, g.cutoffs[n], g.destination, ids)
	})
}

// look returns those of the events that are still there, as they are now.
func (g *parkedGround) look(ctx context.Context, n int, ids []string) ([]Event, error) {
	page, err := g.store.list(ctx, n, shard.Listing{Of: "ids", IDs: ids})
	if err != nil {
		return nil, err
	}
	events := make([]Event, len(page.rows))
	for i, row := range page.rows {
		events[i], _ = event(n, row)
	}
	return events, nil
}

// failures returns what has been parked in a shard since the last call, or since the cut-off.
func (g *parkedGround) failures(ctx context.Context, n int) ([]Event, error) {
	var events []Event
	of := shard.Listing{Of: "parked", Only: "k", Limit: thinPage, After: g.seen[n]}
	for {
		page, err := g.store.list(ctx, n, of)
		if err != nil {
			return events, err
		}
		for _, row := range page.rows {
			e, _ := event(n, row)
			events = append(events, e)
			g.seen[n] = shard.Place{Score: fmt.Sprint(e.At.UnixMilli()), Member: e.ID}
		}
		if !page.more {
			return events, nil
		}
		of.After = page.next
	}
}
