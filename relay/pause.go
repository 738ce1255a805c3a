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

// pauseLook is how often a relay reads which destinations operators have paused.
const pauseLook = time.Second

// pauses holds the destinations that an operator has paused, as of the last read.
//
// Events of a paused destination are held: they stay pending, become due so late that relays do not claim them over and
// over, and are flagged, so that the end of the pause finds them. Every relay that sees a pause end makes all held events
// due. Events whose destination is still paused are held again.
type pauses struct {
	known  atomic.Pointer[map[string]bool]
	ends   atomic.Uint64 // number of pauses that have ended
	owed   bool          // held events must still be made due
	failed bool          // the last read failed
}

func (p *pauses) some() bool {
	known := p.known.Load()
	return known != nil && len(*known) > 0
}

// update stores the active pauses. It sets owed if a pause has ended since the last update or, at the first update,
// recently.
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

// watchPauses reads the pauses once a second until ctx ends.
func (r *Relay) watchPauses(ctx context.Context) {
	for sleep.For(ctx, pauseLook-rand.N(pauseLook/8)) {
		r.lookAtPauses(ctx)
	}
}

// lookAtPauses reads the pauses. If that fails, the last known ones stay in effect.
func (r *Relay) lookAtPauses(ctx context.Context) {
	asked, cancel := context.WithTimeout(ctx, sweepTimeout)
	all, now, err := r.scripts.Pauses(asked, r.scripts.Shard(r.shards[0]))
	cancel()
	if err != nil {
		if !r.pauses.failed && ctx.Err() == nil { // once per outage
			r.cfg.Logger.Warn("relay: reading pauses failed", "error", err)
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

// unhold makes the held events of shards due. It reports whether that succeeded for all shards.
func (r *Relay) unhold(ctx context.Context, slots []int) bool {
	done := true
	for chunk := range slices.Chunk(slots, sweepAtOnce) {
		bounded, cancel := context.WithTimeout(ctx, settleTries)
		err := r.unholdChunk(bounded, chunk)
		cancel()
		if err != nil {
			done = false
			if ctx.Err() == nil {
				r.cfg.Logger.Warn("relay: releasing paused events failed", "error", err)
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

// withoutPaused removes the events of paused destinations from a batch, and returns the slots of these events.
func (r *Relay) withoutPaused(events []leased, messages []*message.RawMessage, fates settlements) ([]leased, []*message.RawMessage, []int) {
	if !r.pauses.some() {
		return events, messages, nil
	}
	known, held, n := *r.pauses.known.Load(), map[int]bool{}, 0
	for i, msg := range messages {
		e := events[i]
		if known[msg.Destination()] || known[scopeOf(r.publisher, msg)] {
			wait := shard.HeldFor/2 + rand.N(shard.HeldFor/2)
			fates.add(e.slot, shard.Settlement{ID: e.id, Lease: e.lease, What: settle.Hold, Number: float64(wait.Milliseconds()), Destination: e.to})
			held[e.slot] = true
			continue
		}
		events[n], messages[n] = e, msg
		n++
	}
	return events[:n], messages[:n], slices.Collect(maps.Keys(held))
}
