package outbox

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/shard"
)

// noCutoff re-arms an event regardless of when it was parked.
var noCutoff time.Time

// RearmOptions configure RearmAll. The zero value re-arms all events at once, but stops if one of them parks again.
type RearmOptions struct {
	// Limit is the maximum number of events to re-arm. Defaults to 0: all.
	Limit int
	// DryRun counts the events that would be re-armed, and changes nothing.
	DryRun bool
	// Before leaves out events that were parked after this time of the server's clock, and Filter.OlderThan counts back from it.
	// Defaults to the zero time: RearmAll leaves out those that are parked after it has begun.
	Before time.Time
	// Canary is the number of events to re-arm first. The others follow if at most MaxParkedAgain of those are not sent. Defaults
	// to 0.
	Canary int
	// CanaryWait is how long to wait for the fate of the canary. Defaults to 30 seconds.
	CanaryWait time.Duration
	// Rate is the maximum number of events to re-arm per second after the canary. Defaults to 0: no limit.
	Rate float64
	// MaxParkedAgain is the number of re-armed events that may park again. One more ends the operation. A negative value allows
	// any number. Defaults to 0.
	MaxParkedAgain int
	// Destination replaces the destination in the bodies, if Store.WithDestinations allows it. Defaults to none.
	Destination string
	// Progress is called with the current result from time to time, in the goroutine of the operation. Defaults to none.
	Progress func(RearmResult)
}

func (o RearmOptions) withDefaults() RearmOptions {
	o.CanaryWait = cmp.Or(o.CanaryWait, 30*time.Second)
	return o
}

// Validate returns an error if RearmAll would reject the options.
func (o RearmOptions) Validate() error {
	switch {
	case o.Limit < 0 || o.Canary < 0 || o.CanaryWait < 0 || o.Rate < 0:
		return fmt.Errorf("outbox: RearmOptions.Limit is %d, Canary %d, CanaryWait %v and Rate %v; use 0 for the default, or more",
			o.Limit, o.Canary, o.CanaryWait, o.Rate)
	case o.Canary > maxCanary:
		return fmt.Errorf("outbox: RearmOptions.Canary is %d; use at most %d", o.Canary, maxCanary)
	case strings.ContainsAny(o.Destination, "\r\n"):
		return fmt.Errorf("outbox: RearmOptions.Destination is %.80q; use one line", o.Destination)
	}
	return nil
}

// RearmResult is the result of RearmAll.
type RearmResult struct {
	// Operation is the id of the operation in the audit.
	Operation string
	// Matched is the number of events that the filter selected so far. Rearmed is the number of them that were re-armed.
	Matched, Rearmed int
	// Skipped counts the events that were not re-armed by outcome, such as Newer (parked again meanwhile) and NoBody (erased).
	Skipped map[Outcome]int
	// Classes counts failures by class: those of the matched events in a dry run, otherwise those of the events that parked
	// again.
	Classes map[string]int
	// Canary is the fate of the events that were re-armed first.
	Canary Canary
	// ParkedAgain is the number of re-armed events that have parked again, as of the last poll.
	ParkedAgain int
	// Stopped is why the operation ended before all events were re-armed. It is empty if it did not.
	Stopped Stop
	// Class is the most common class of the failures that stopped the operation.
	Class string
}

// Canary is the fate of the events that were re-armed first.
type Canary struct {
	// Sent is the number of published events, ParkedAgain the number of parked ones, and Trying the number of events whose fate
	// was not known in time.
	Sent, ParkedAgain, Trying int
}

// Stop is why an operation ended early.
type Stop string

// The reasons to stop.
const (
	// StoppedByCanary means that more than MaxParkedAgain of the first events were not sent in time.
	StoppedByCanary Stop = "canary"
	// StoppedByFailures means that more than MaxParkedAgain events parked again.
	StoppedByFailures Stop = "parked again"
	// StoppedFull means that the outbox of a shard is full. Use a rate, and continue later.
	StoppedFull Stop = "full"
)

// RearmAll re-arms the events that are parked now and that the filter selects, the oldest of each shard first. It ignores events
// that are parked later or again, even if the operation takes long. It skips and counts erased events. If it stops or returns an
// error, the result states what was done. If ctx ends, it stops with an error. The store must have an operator; see As.
func (s *Store) RearmAll(ctx context.Context, f Filter, opts RearmOptions) (RearmResult, error) {
	if err := cmp.Or(opts.Validate(), s.CheckDestination(opts.Destination)); err != nil {
		return RearmResult{}, err
	}
	opts = opts.withDefaults()
	why := f.String()
	o, err := s.begin(brief(why))
	if err != nil {
		return RearmResult{}, err
	}
	edges, err := s.edges("re-arm", f, func(slots []int) ([]shard.Edge, error) { return s.scripts.LastParked(ctx, slots) })
	if err != nil {
		return RearmResult{}, err
	}
	g := &parkedGround{operation: o, filter: f, destination: opts.Destination, edges: edges, cutoffs: map[int]time.Time{}, seen: map[int]shard.Place{}}
	before := opts.Before.Add(-f.OlderThan)
	for i, edge := range edges {
		g.seen[edge.Slot] = shard.Place{Score: fmt.Sprint(edge.At.UnixMilli()), Member: behindAll}
		if !opts.Before.IsZero() && edge.At.After(before) {
			edges[i].At = before
		}
		g.cutoffs[edge.Slot] = edges[i].At
	}
	c := bulk{ground: g, opts: opts}
	err = c.run(ctx)
	c.result.Operation = o.act.Operation
	return c.result, err
}

// behindAll sorts after every id of the same time.
const behindAll = "\xff\xff\xff\xff"

// parkedGround provides the parked events of a store to a bulk operation.
type parkedGround struct {
	*operation

	filter      Filter
	destination string
	edges       []shard.Edge
	cutoffs     map[int]time.Time   // by slot: when the last event to re-arm was parked, or later
	seen        map[int]shard.Place // by slot: the last failure that was read
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

// look returns the current state of those events that still exist.
func (g *parkedGround) look(ctx context.Context, n int, ids []string) ([]Event, error) {
	page, err := g.store.list(ctx, n, shard.Listing{Of: "ids", IDs: ids})
	if err != nil {
		return nil, err
	}
	events := make([]Event, len(page.Rows))
	for i, row := range page.Rows {
		events[i], _ = event(n, row)
	}
	return events, nil
}

// failures returns the events that were parked in a shard since the last call or, at first, since the cut-off.
func (g *parkedGround) failures(ctx context.Context, n int) ([]Event, error) {
	var events []Event
	of := shard.Listing{Of: "parked", Only: "k", Limit: thinPage, After: g.seen[n]}
	for {
		page, err := g.store.list(ctx, n, of)
		if err != nil {
			return events, err
		}
		for _, row := range page.Rows {
			e, _ := event(n, row)
			events = append(events, e)
			g.seen[n] = shard.Place{Score: fmt.Sprint(e.At.UnixMilli()), Member: e.ID}
		}
		if !page.More {
			return events, nil
		}
		of.After = page.Next
	}
}
