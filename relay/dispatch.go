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

// dispatch publishes the groups side by side and settles each when it has been answered, so that none waits for a slower
// one. What goes to see whether an outage is over holds nobody up.
func (r *Relay) dispatch(ctx context.Context, deadline time.Time, groups []*group, fates settlements) {
	answers := make(chan settlements, len(groups))
	running := 0
	for _, g := range groups {
		if len(g.events) == 0 {
			continue
		}
		g.in = r.outage.enter(g.scope, len(g.events))
		switch {
		case !g.in.open:
			for _, e := range g.events {
				fates.add(e.slot, script.Settlement{ID: e.id, Lease: e.lease, What: "back", Number: float64(g.in.wait.Milliseconds())})
			}
		case g.in.probe:
			r.probes.Go(func() { r.settleAll(ctx, r.answer(ctx, deadline, g)) })
		default:
			running++
			go func() { answers <- r.answer(ctx, deadline, g) }()
		}
	}
	for {
		r.settleAll(ctx, fates)
		if running == 0 {
			return
		}
		fates = <-answers
		for running--; len(answers) > 0; running-- { // those that have come meanwhile as well
			for slot, more := range <-answers {
				fates[slot] = append(fates[slot], more...)
			}
		}
	}
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
