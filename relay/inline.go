package relay

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/sleep"
)

// givingBack is the interval at which a stopping relay checks whether reserved slots were released.
const givingBack = 10 * time.Millisecond

// inlineRelay is the part of a Relay that the Transactor uses.
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
	own := events[:0]   // events that this relay publishes inline
	var first time.Time // when the first of the other events is due
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
	if !first.IsZero() { // once is enough, because the claim finds all of them
		r.schedule.add(slot, first)
	}
	switch {
	case len(own) > 0:
		r.inline <- handover{time.Now(), slot, own} // never blocks: the channel has room for every reservation
	case reserved:
		r.waiting.Add(-1)
	}
}

// publishInline publishes the events that this process has committed. Each batch holds the events that already wait; it
// never waits for more.
func (r *Relay) publishInline(ctx, work context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-r.inline:
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
				r.publish(work, first.at, events[:n], nothing)
				events = events[n:]
			}
		}
	}
}

// gather returns the first handover with those that already wait, up to a batch.
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

// giveBack releases the events that still wait for inline publishing when the relay stops, with one script for each slot.
// It also releases the events of commits that reserved a place before and hand over meanwhile.
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
