package relay

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/script"
	"github.com/luatx/luatx/message"
)

// group is what of a batch has one scope.
type group struct {
	scope    string
	events   []leased
	messages []*message.RawMessage
	in       entry
}

// groups splits a batch by scope, the order within each kept.
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
		g.events, g.messages = append(g.events, events[i]), append(g.messages, msg)
	}
	return all
}

// settlements are by slot.
type settlements map[int][]script.Settlement

func (s settlements) add(slot int, one script.Settlement) { s[slot] = append(s[slot], one) }

const (
	// patience is how long a worker waits for the answers of a Scoped publisher before it turns to the next batch.
	patience = 10 * time.Millisecond
	// maxBehind is how many batches nobody waits for at a time.
	maxBehind = 256
)

// dispatch publishes the groups side by side and settles each when it has been answered, so that none waits for a slower
// one. A destination that is slow, or gives no answer at all, holds up no worker for long.
func (r *Relay) dispatch(ctx context.Context, deadline time.Time, groups []*group, fates settlements) {
	answers := make(chan settlements, len(groups))
	running := 0
	for _, g := range groups {
		if len(g.events) == 0 {
			continue
		}
		g.in = r.outage.enter(g.scope, len(g.events))
		if !g.in.open {
			for _, e := range g.events {
				fates.add(e.slot, script.Settlement{ID: e.id, Lease: e.lease, What: "back", Number: float64(g.in.wait.Milliseconds())})
			}
			continue
		}
		running++
		go func() { answers <- r.answer(ctx, deadline, g) }()
	}
	r.settleAll(ctx, fates)
	if _, ok := r.publisher.(Scoped); !ok {
		r.collect(ctx, answers, running, nil)
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	running = r.collect(ctx, answers, running, timer.C)
	if running == 0 {
		return
	}
	if r.late.Add(1) > maxBehind {
		r.late.Add(-1)
		r.collect(ctx, answers, running, nil)
		return
	}
	r.behind.Go(func() {
		defer r.late.Add(-1)
		r.collect(ctx, answers, running, nil)
	})
}

// collect settles what is answered until so many groups are, or the time is up, and returns how many are not.
func (r *Relay) collect(ctx context.Context, answers <-chan settlements, running int, up <-chan time.Time) int {
	for running > 0 {
		var fates settlements
		select {
		case fates = <-answers:
		case <-up:
			return running
		}
		for running--; len(answers) > 0; running-- { // those that have come meanwhile as well
			for slot, more := range <-answers {
				fates[slot] = append(fates[slot], more...)
			}
		}
		r.settleAll(ctx, fates)
	}
	return 0
}

// answer publishes a group, within what is left of its lease, and says how each of its events is to be settled.
func (r *Relay) answer(ctx context.Context, deadline time.Time, g *group) settlements {
	bounded, cancel := context.WithDeadline(ctx, deadline)
	errs := ask(bounded, r.publisher, g.messages)
	cancel()
	if ctx.Err() != nil { // stopped in the middle: not the events' fault, nor the destination's
		for i, err := range errs {
			errs[i] = Later(err, 0)
		}
	}
	pause := r.outage.note(g.scope, g.in, errs)
	fates := make(settlements)
	for i, e := range g.events {
		fates.add(e.slot, settlement(e, errs[i], pause))
	}
	return fates
}

func (r *Relay) settleAll(ctx context.Context, fates settlements) {
	for slot, batch := range fates {
		r.settle(ctx, slot, batch)
	}
}
