package relay

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/message"
)

// leased is an event that this relay may publish.
type leased struct {
	slot   int
	id     string
	body   []byte
	given  bool   // the id was not derived from a message
	lease  string // empty if this process committed the event
	route  string // the destination, if an operator has changed it
	unread error  // why the body could not be read
	to     string // the destination after decoding, or the scope if the event names none

	replicated bool // Config.Barrier does not hold the event back
}

// leases records events that this relay has claimed, and returns them.
func (r *Relay) leases(slot int, lease string, claimed []shard.Claimed) []leased {
	r.claims.add(slot, lease, len(claimed), r.cfg.Lease)
	events := make([]leased, len(claimed))
	unread := 0
	var cause error
	for i, e := range claimed {
		events[i] = leased{slot: slot, id: e.ID, body: e.Body, given: e.Given, lease: lease, route: e.Route, unread: e.Unread}
		if e.Unread != nil {
			unread, cause = unread+1, e.Unread
		}
	}
	if unread > 0 && !stops(cause) {
		r.cfg.Logger.Error("relay: event bodies not read", "slot", slot, "events", unread, "error", cause)
	}
	return events
}

// stops reports whether a body was not read because the relay stops.
func stops(unread error) bool { return errors.Is(unread, context.Canceled) }

// readable returns the events whose bodies were read. It gives the others back, and their attempts do not count.
func (r *Relay) readable(events []leased, fates settlements) []leased {
	return slices.DeleteFunc(events, func(e leased) bool {
		if e.unread == nil {
			return false
		}
		wait := r.cfg.PauseCap
		if stops(e.unread) {
			wait = 0 // for the other relays
		}
		e.to = e.route
		fates.add(e.slot, settlement(e, Later(e.unread, wait), 0))
		return true
	})
}

// hold returns how long to lease the events that follow settled events in their lanes, so that this relay publishes them.
// If it returns 0, any relay may claim them.
type hold func() time.Duration

func nothing() time.Duration { return 0 }

// publish publishes a batch within the rest of its lease and settles it. It also publishes the events that follow in the
// lanes, as long as next leases them.
func (r *Relay) publish(ctx context.Context, taken time.Time, events []leased, next hold) {
	r.dispatch(ctx, r.deadline(taken), events, next)
}

func (r *Relay) deadline(taken time.Time) time.Time { return taken.Add(r.cfg.forPublishing()) }

// decode decodes the bodies of events. It parks events whose body is malformed.
func decode(events []leased, fates settlements) (sound []leased, messages []*message.RawMessage) {
	sound, messages = make([]leased, 0, len(events)), make([]*message.RawMessage, 0, len(events))
	var last message.Attributes
	for _, e := range events {
		msg := &message.RawMessage{Attributes: last} // equal texts share their memory
		if err := msg.UnmarshalJSON(e.body); err != nil {
			fates.add(e.slot, shard.Settlement{ID: e.id, What: settle.Park, Lease: e.lease, Class: "malformed", Error: "relay: " + err.Error(), Destination: e.route})
			continue
		}
		last = msg.Attributes
		if e.route != "" {
			msg.Attributes[message.AttrDestination] = e.route
		}
		e.to = msg.Destination()
		sound, messages = append(sound, e), append(messages, msg)
	}
	return sound, messages
}

func settlement(e leased, err error, pause time.Duration) shard.Settlement {
	fate := settle.Decide(err)
	s := shard.Settlement{ID: e.id, Lease: e.lease, What: string(fate), Destination: e.to}
	if fate == settle.Sent {
		s.Body, s.Given = e.body, e.given
		return s
	}
	s.Error, s.Class = err.Error(), classOf(err, "")
	switch fate {
	case settle.GiveBack:
		s.Number = float64(settle.Wait(err, pause).Milliseconds())
	case settle.Park:
		s.Class = cmp.Or(s.Class, "refused")
	default:
		s.Number = rand.Float64()
	}
	return s
}

// settle stores the results of a batch in its shard. If that fails, the events are published again when their lease has
// ended. It returns the events that follow in the lanes, leased for the duration that next returns.
func (r *Relay) settle(ctx context.Context, slot int, batch []shard.Settlement, next hold) []leased {
	ctx, cancel := context.WithTimeout(lifeOf(ctx), min(settleTries, r.cfg.Lease))
	defer cancel()
	settled, err := r.scripts.Settle(ctx, r.scripts.Shard(slot), shard.Settling{
		Attempts: r.cfg.Attempts, Base: r.cfg.BackoffBase, Cap: r.cfg.BackoffCap, Retention: r.cfg.SentRetention,
		KeepBody: r.cfg.KeepSentBodies, Continues: r.cfg.OnPark == LaneContinues, Lease: next(),
	}, batch)
	if err != nil {
		r.cfg.Logger.Error("relay: settling failed", "slot", slot, "events", len(batch), "error", err)
		return nil
	}
	r.claims.settled(slot, batch)
	r.counts.note(settled.Done)
	r.record(batch, settled.Done)
	r.cfg.Observer.settled(ctx, r.cfg.Logger, slot, batch, settled.Done)
	due := settled.Heads > len(settled.Promoted)
	for i, what := range settled.Done {
		switch what {
		case settle.Park:
			r.cfg.Logger.Error("relay: event parked", "slot", slot, "event", batch[i].ID, "error", batch[i].Error)
		case settle.Retry, settle.GiveBack:
			due = true
		}
	}
	if due {
		r.schedule.add(slot, time.Now())
		if r.stopping.Load() {
			r.inside.Wake(slot)
		}
	}
	return r.leases(slot, settled.Lease, settled.Promoted)
}
