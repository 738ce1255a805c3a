package relay

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/sleep"
)

// givingBack is how often a stopping relay looks whether a reserved slot was given up.
const givingBack = 10 * time.Millisecond

// inlineRelay is a Relay as the Transactor sees it.
type inlineRelay struct{ *Relay }

// Reserve implements link.Relay.
func (r inlineRelay) Reserve() (time.Duration, bool) {
	if !r.open.Load() || r.outage.paused() || r.barrier.left() > 0 {
		return 0, false
	}
	if r.waiting.Add(1) > int64(r.cfg.InlineSlots) {
		r.waiting.Add(-1)
		return 0, false
	}
	return r.cfg.Lease, true
}

// Committed implements link.Relay.
func (r inlineRelay) Committed(slot int, events []shard.Event, reserved bool) {
	own := events[:0]   // they are this relay's
	var first time.Time // when one of the others is due
	for _, event := range events {
		if reserved && event.Plain() {
			own = append(own, event)
			continue
		}
		due := event.At
		if due.IsZero() {
			due = time.Now()
		}
		if first.IsZero() || due.Before(first) {
			first = due
		}
	}
	if !first.IsZero() { // once: the look at it finds all
		r.schedule.add(slot, first)
	}
	switch {
	case len(own) > 0:
		r.inline <- handover{slot, own} // has room: one place a reservation
	case reserved:
		r.waiting.Add(-1)
	}
}

// publishInline publishes what this process has committed, whatever waits in one batch; it never lingers.
func (r *Relay) publishInline(ctx, work context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-r.inline:
			taken := time.Now()
			batch := r.gather(first)
			r.waiting.Add(-int64(len(batch)))
			events := make([]leased, 0, len(batch))
			for _, h := range batch {
				for _, event := range h.events {
					events = append(events, leased{slot: h.slot, id: event.ID, body: event.Body, given: event.Given})
				}
			}
			for len(events) > 0 {
				n := min(len(events), r.cfg.BatchSize)
				r.publish(work, taken, events[:n], nothing)
				events = events[n:]
			}
		}
	}
}

// gather takes what waits beside the first handover, up to a batch.
func (r *Relay) gather(first handover) []handover {
	batch := append(make([]handover, 0, 1+min(len(r.inline), r.cfg.BatchSize)), first)
	for n := len(first.events); n < r.cfg.BatchSize; {
		select {
		case next := <-r.inline:
			batch = append(batch, next)
			n += len(next.events)
		default:
			return batch
		}
	}
	return batch
}

// giveBack makes due what still waits for inline publishing when the relay stops, one script for all that waits of a slot, and
// what commits that had reserved a place before hand over meanwhile.
func (r *Relay) giveBack(life context.Context) {
	ctx, cancel := context.WithTimeout(life, r.cfg.DrainTimeout)
	defer cancel()
	for r.waiting.Load() > 0 {
		back := make(settlements)
		for range len(r.inline) {
			h := <-r.inline
			r.waiting.Add(-1)
			for _, event := range h.events {
				back.add(h.slot, shard.Settlement{ID: event.ID, What: settle.GiveBack})
			}
		}
		r.settleAll(ctx, back, nothing)
		if len(back) == 0 && !sleep.For(ctx, givingBack) {
			return
		}
	}
}
