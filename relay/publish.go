package relay

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/luatx/luatx/internal/script"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// leased is an event this relay may publish.
type leased struct {
	slot  int
	id    string
	body  []byte
	lease string // empty: this process committed it
	route string // its destination, where an operator has changed it

	replicated bool // Config.Barrier has let it through
}

func leases(slot int, lease string, claimed []script.Claimed) []leased {
	events := make([]leased, len(claimed))
	for i, e := range claimed {
		events[i] = leased{slot: slot, id: e.ID, body: e.Body, lease: lease, route: e.Route}
	}
	return events
}

// hold says for how long the events are leased that follow in the lanes of settled ones, to be published with them; 0:
// they are everybody's.
type hold func() time.Duration

func nothing() time.Duration { return 0 }

// publish sends a batch, within what is left of its lease, and settles it; and what follows it in its lanes, as long as
// the hold says so.
func (r *Relay) publish(ctx context.Context, taken time.Time, events []leased, next hold) {
	r.dispatch(ctx, r.deadline(taken), events, next)
}

func (r *Relay) deadline(taken time.Time) time.Time { return taken.Add(r.cfg.forPublishing()) }

// decode reads the bodies of events; what is none it parks.
func decode(events []leased, fates settlements) (sound []leased, messages []*message.RawMessage) {
	sound, messages = make([]leased, 0, len(events)), make([]*message.RawMessage, 0, len(events))
	for _, e := range events {
		msg, err := outbox.Decode(e.body)
		if err != nil {
			fates.add(e.slot, script.Settlement{ID: e.id, What: "parked", Lease: e.lease, Class: "malformed", Error: err.Error()})
			continue
		}
		if e.route != "" {
			msg.Attributes[message.AttrDestination] = e.route
		}
		sound, messages = append(sound, e), append(messages, msg)
	}
	return sound, messages
}

func settlement(e leased, err error, pause time.Duration) script.Settlement {
	s := script.Settlement{ID: e.id, Lease: e.lease, What: "sent"}
	if err == nil {
		s.Body = e.body
		return s
	}
	s.Error, s.Class = err.Error(), classOf(err, "")
	switch {
	case errors.Is(err, ErrLater):
		wait, _ := message.RetryDelay(err)
		s.What, s.Number = "back", float64(wait.Milliseconds())
	case errors.Is(err, ErrUnavailable):
		s.What, s.Number = "back", float64(pause.Milliseconds())
	case message.IsPermanent(err):
		s.What, s.Class = "parked", cmp.Or(s.Class, "refused")
	default:
		s.What, s.Number = "failed", rand.Float64()
	}
	return s
}

// settle tells the shard. What cannot be told is published again when its lease has run out. It returns the events that
// follow in their lanes, leased for as long as the hold says.
func (r *Relay) settle(ctx context.Context, slot int, batch []script.Settlement, next hold) []leased {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(settleTries, r.cfg.Lease))
	defer cancel()
	settled, err := r.scripts.Settle(ctx, r.scripts.Shard(slot), script.Settling{
		Attempts: r.cfg.Attempts, Base: r.cfg.BackoffBase, Cap: r.cfg.BackoffCap, Retention: r.cfg.SentRetention,
		KeepBody: r.cfg.KeepSentBodies, Continues: r.cfg.OnPark == LaneContinues, Lease: next(),
	}, batch)
	if err != nil {
		r.cfg.Logger.Error("relay: events could not be settled and will be published again", "slot", slot, "events", len(batch), "error", err)
		return nil
	}
	r.cfg.Observer.settled(ctx, r.cfg.Logger, slot, batch, settled.Done)
	due := settled.Heads > len(settled.Promoted)
	for i, what := range settled.Done {
		switch what {
		case "parked":
			r.cfg.Logger.Error("relay: event parked", "slot", slot, "event", batch[i].ID, "error", batch[i].Error)
		case "failed", "back":
			due = true
		}
	}
	if due {
		r.schedule.add(slot, time.Now())
		if r.stopping.Load() {
			r.transactor.WakeRelays(slot)
		}
	}
	return leases(slot, settled.Lease, settled.Promoted)
}
