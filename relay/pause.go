package relay

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
)

// pauseLook is how often a relay reads what operators have paused.
const pauseLook = time.Second

// pauses are the destinations that an operator has paused, as far as this relay knows.
//
// An event of one is held: it stays pending, for so long that nobody claims it over and over, and under a mark by which
// the end of a pause finds it. Every relay that sees a pause end makes all held events due. Events that are still paused
// are held again.
type pauses struct {
	known  atomic.Pointer[map[string]bool]
	ends   atomic.Uint64 // pauses seen to end
	owed   bool          // what is held must be made due yet
	failed bool          // at the last look
}

func (p *pauses) some() bool {
	known := p.known.Load()
	return known != nil && len(*known) > 0
}

// update stores the active pauses, and whether one has ended since the last update or, at the first, recently.
func (p *pauses) update(all []shard.Pause, now time.Time) {
	old, active := p.known.Load(), make(map[string]bool, len(all))
	for _, pause := range all {
		switch {
		case pause.Active(now):
			active[pause.Destination] = true
		case old == nil && now.Sub(pause.Until) < shard.HeldFor:
			p.owed = true
		}
	}
	if old != nil {
		for name := range *old {
			p.owed = p.owed || !active[name]
		}
	}
	p.known.Store(&active)
}

// watchPauses looks once a second.
func (r *Relay) watchPauses(ctx context.Context) {
	for sleep.For(ctx, pauseLook-rand.N(pauseLook/8)) {
		r.lookAtPauses(ctx)
	}
}

// lookAtPauses reads what is paused; where it cannot be read, what was known stays.
func (r *Relay) lookAtPauses(ctx context.Context) {
	asked, cancel := context.WithTimeout(ctx, sweepTimeout)
	all, now, err := r.scripts.Pauses(asked, r.scripts.Shard(r.shards[0]))
	cancel()
	if err != nil {
		if !r.pauses.failed && ctx.Err() == nil { // a line an outage
			r.cfg.Logger.Warn("relay: pauses cannot be read; the last known ones stay in effect", "error", err)
		}
		r.pauses.failed = true
		return
	}
	r.pauses.failed = false
	r.pauses.update(all, now)
	if r.pauses.owed {
		r.pauses.ends.Add(1)
		r.pauses.owed = !r.unhold(ctx, r.shards)
	}
}

// unhold makes what is held in shards due, and reports whether that was possible for all of them.
func (r *Relay) unhold(ctx context.Context, slots []int) bool {
	done := true
	for chunk := range slices.Chunk(slots, sweepAtOnce) {
		bounded, cancel := context.WithTimeout(ctx, settleTries)
		err := r.unholdChunk(bounded, chunk)
		cancel()
		if err != nil {
			done = false
			if ctx.Err() == nil {
				r.cfg.Logger.Warn("relay: a pause has ended, and not all that was held for it could be made due", "error", err)
			}
		}
	}
	return done
}

func (r *Relay) unholdChunk(ctx context.Context, slots []int) error {
	waiting, err := r.scripts.Waiting(ctx, slots)
	for _, slot := range waiting {
		held, failed := r.scripts.Unhold(ctx, r.scripts.Shard(slot))
		if held > 0 {
			r.schedule.add(slot, time.Now())
		}
		if failed != nil {
			return failed
		}
	}
	return err
}

// withoutPaused takes out of a batch what is for a paused destination, and says in which slots there was any.
func (r *Relay) withoutPaused(events []leased, messages []*message.RawMessage, fates settlements) ([]leased, []*message.RawMessage, []int) {
	if !r.pauses.some() {
		return events, messages, nil
	}
	known, held, n := *r.pauses.known.Load(), map[int]bool{}, 0
	for i, msg := range messages {
		e := events[i]
		if known[msg.Destination()] || known[scopeOf(r.publisher, msg)] {
			wait := shard.HeldFor/2 + rand.N(shard.HeldFor/2)
			fates.add(e.slot, shard.Settlement{ID: e.id, Lease: e.lease, What: settle.Hold, Number: float64(wait.Milliseconds())})
			held[e.slot] = true
			continue
		}
		events[n], messages[n] = e, msg
		n++
	}
	return events[:n], messages[:n], slices.Collect(maps.Keys(held))
}
