package relay

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/message"
)

// group is the events of a batch that have the same scope.
type group struct {
	scope    string
	events   []leased
	messages []*message.RawMessage
	in       entry
}

// groups splits a batch by scope. It keeps the order of the events within each scope.
func (r *Relay) groups(events []leased, messages []*message.RawMessage) []*group {
	if _, ok := r.publisher.(Scoped); !ok {
		return []*group{{events: events, messages: messages}}
	}
	var all []*group
	found := make(map[string]*group)
	for i, msg := range messages {
		scope := scopeOf(r.publisher, msg)
		g := found[scope]
		if g == nil {
			g = &group{scope: scope}
			found[scope] = g
			all = append(all, g)
		}
		events[i].to = cmp.Or(events[i].to, scope)
		g.events, g.messages = append(g.events, events[i]), append(g.messages, msg)
	}
	return all
}

// giveBack adds settlements that give the events back. Their attempts do not count.
func (g *group) giveBack(fates settlements, wait time.Duration) {
	for _, e := range g.events {
		fates.add(e.slot, shard.Settlement{ID: e.id, Lease: e.lease, What: settle.GiveBack, Number: float64(wait.Milliseconds()), Destination: e.to})
	}
}

// settlements holds the settlements of each slot.
type settlements map[int][]shard.Settlement

func (s settlements) add(slot int, one shard.Settlement) { s[slot] = append(s[slot], one) }

// expect allocates room for the leading events, as far as they are of the given slot.
func (s settlements) expect(slot int, events []leased) {
	n := 0
	for n < len(events) && events[n].slot == slot {
		n++
	}
	s[slot] = slices.Grow(s[slot], n)
}

const (
	// patience is how long a worker waits for the results of a Scoped publisher before it starts the next batch.
	patience = 10 * time.Millisecond
	// maxBehind is the maximum number of batches that run without a worker waiting for them.
	maxBehind = 256
)

// flight is a batch that is being published in groups, together with the events that follow it in its lanes.
type flight struct {
	relay   *Relay
	next    hold
	answers chan settlements
	running int // groups that are still being published
}

// dispatch publishes the groups of a batch concurrently, and the events that follow in their lanes. It settles each group
// when its call returns, so that no group waits for a slower one. A slow destination holds up no worker for long.
func (r *Relay) dispatch(ctx context.Context, deadline time.Time, events []leased, next hold) {
	f := &flight{relay: r, next: next, answers: make(chan settlements, 16)}
	f.launch(ctx, deadline, events)
	if _, ok := r.publisher.(Scoped); !ok {
		f.collect(ctx, nil)
		return
	}
	if f.collect(ctx, time.After(patience)) {
		return
	}
	if r.late.Add(1) > maxBehind {
		r.late.Add(-1)
		f.collect(ctx, nil)
		return
	}
	r.behind.Go(func() {
		defer r.late.Add(-1)
		f.collect(ctx, nil)
	})
}

// launch starts the publishing of events. Settling an event without publishing it may release events that follow in its
// lane; launch starts those too.
func (f *flight) launch(ctx context.Context, deadline time.Time, events []leased) {
	r := f.relay
	for len(events) > 0 {
		events = r.replicated(ctx, events)
		fates := make(settlements)
		sound, messages := decode(r.readable(events, fates), fates)
		ends := r.pauses.ends.Load()
		sound, messages, held := r.withoutPaused(sound, messages, fates)
		for _, g := range r.groups(sound, messages) {
			if len(g.events) == 0 {
				continue
			}
			if time.Now().After(deadline) { // the claim took too long, or they have waited too long for a worker
				r.cfg.Logger.Warn("relay: no time left to publish events", "events", len(g.events))
				g.giveBack(fates, 0)
				continue
			}
			if g.in = r.outage.enter(g.scope, len(g.events)); !g.in.open {
				g.giveBack(fates, g.in.wait)
				continue
			}
			f.running++
			until := deadline
			go func() { f.answers <- r.answer(ctx, until, g) }()
		}
		deadline = r.deadline(time.Now())
		events = r.settleAll(ctx, fates, f.next)
		if len(held) > 0 && r.pauses.ends.Load() != ends { // otherwise the relay that sees the pause end releases these events
			r.unhold(ctx, held)
		}
	}
}

// collect settles groups as their results arrive, until none is left or up receives. It reports whether none is left.
func (f *flight) collect(ctx context.Context, up <-chan time.Time) bool {
	for f.running > 0 {
		var fates settlements
		select {
		case fates = <-f.answers:
		case <-up:
			return false
		}
		for f.running--; len(f.answers) > 0; f.running-- { // together with the results that are already in the channel
			for slot, more := range <-f.answers {
				fates[slot] = append(fates[slot], more...)
			}
		}
		deadline := f.relay.deadline(time.Now())
		f.launch(ctx, deadline, f.relay.settleAll(ctx, fates, f.next))
	}
	return true
}

// answer publishes a group, within the rest of its lease, and returns the settlements of its events.
func (r *Relay) answer(ctx context.Context, deadline time.Time, g *group) settlements {
	r.inFlight.Add(int64(len(g.events)))
	errs := r.call(ctx, deadline, g)
	r.inFlight.Add(-int64(len(g.events)))
	if ctx.Err() != nil { // the relay stopped the call, so neither the events nor the destination are to blame
		for i, err := range errs {
			errs[i] = Later(err, 0)
		}
	}
	pause := r.outage.note(ctx, g.scope, g.in, errs)
	fates := make(settlements)
	for i, e := range g.events {
		if i == 0 || e.slot != g.events[i-1].slot {
			fates.expect(e.slot, g.events[i:])
		}
		fates.add(e.slot, settlement(e, errs[i], pause))
	}
	return fates
}

// call calls the Publisher, unless the relay has stopped meanwhile.
func (r *Relay) call(ctx context.Context, deadline time.Time, g *group) []error {
	if err := ctx.Err(); err != nil {
		return fill(len(g.events), err)
	}
	began := time.Now()
	if end := began.Add(r.cfg.PublishTimeout); end.Before(deadline) {
		deadline = end
	}
	bounded, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	w := watch{outages: &r.outage, log: r.cfg.Logger, notify: r.cfg.Observer.Stuck, scope: g.scope, began: began}
	w.late = func(events []*message.RawMessage, errs []error) { r.settleLate(ctx, g, events, errs) }
	bounded = r.withProducers(bounded, g)
	errs := ask(w.supervision(ctx, r.grace).attach(bounded), r.publisher, g.messages)
	r.cfg.Observer.published(ctx, r.cfg.Logger, g.scope, began, errs)
	return errs
}

// settleLate settles the events that an abandoned call has published after all. The others count as failed already, and so
// lost their lease. Nothing is settled after Run has returned.
func (r *Relay) settleLate(ctx context.Context, g *group, events []*message.RawMessage, errs []error) {
	sent := make(settlements)
	for i, msg := range events {
		at := slices.Index(g.messages, msg) // -1 if a Publisher of the user copied the event
		if errs[i] == nil && at >= 0 {
			e := g.events[at]
			sent.add(e.slot, settlement(e, nil, 0))
		}
	}
	if r.running.Load() {
		r.settleAll(ctx, sent, nothing)
	}
}

// settleAll settles the events of every slot and returns the events that follow in their lanes.
func (r *Relay) settleAll(ctx context.Context, fates settlements, next hold) []leased {
	var following []leased
	for slot, batch := range fates {
		following = append(following, r.settle(ctx, slot, batch, next)...)
	}
	return following
}
