package relay

import (
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
}

// publish sends a batch, within what is left of its lease, and settles it.
func (r *Relay) publish(ctx context.Context, taken time.Time, events []leased) {
	deadline := taken.Add(r.cfg.Lease * 2 / 3)
	if len(events) == 0 || time.Now().After(deadline) {
		return // what waited too long is left to whoever claims it next
	}
	fates := make(settlements)
	var sound []leased
	var messages []*message.RawMessage
	for _, e := range events {
		msg, err := outbox.Decode(e.body)
		if err != nil {
			fates.add(e.slot, script.Settlement{ID: e.id, What: "parked", Lease: e.lease, Error: err.Error()})
			continue
		}
		sound, messages = append(sound, e), append(messages, msg)
	}
	r.dispatch(ctx, deadline, r.groups(sound, messages), fates)
}

// maxError is how much of an error is kept with an event, in bytes.
const maxError = 1024

func settlement(e leased, err error, pause time.Duration) script.Settlement {
	s := script.Settlement{ID: e.id, Lease: e.lease, What: "sent"}
	if err == nil {
		return s
	}
	s.Error = err.Error()
	s.Error = s.Error[:min(len(s.Error), maxError)]
	switch {
	case errors.Is(err, ErrLater):
		wait, _ := message.RetryDelay(err)
		s.What, s.Number = "back", float64(wait.Milliseconds())
	case errors.Is(err, ErrUnavailable):
		s.What, s.Number = "back", float64(pause.Milliseconds())
	case message.IsPermanent(err):
		s.What = "parked"
	default:
		s.What, s.Number = "failed", rand.Float64()
	}
	return s
}

// settle tells the shard. What cannot be told is published again when its lease has run out.
func (r *Relay) settle(ctx context.Context, slot int, batch []script.Settlement) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(settleTries, r.cfg.Lease))
	defer cancel()
	backoff := script.Backoff{Attempts: r.cfg.Attempts, Base: r.cfg.BackoffBase, Cap: r.cfg.BackoffCap}
	done, err := r.scripts.Settle(ctx, r.scripts.Shard(slot), backoff, r.cfg.SentRetention, batch)
	if err != nil {
		r.cfg.Logger.Error("relay: events could not be settled and will be published again", "slot", slot, "events", len(batch), "error", err)
		return
	}
	retry := false
	for i, what := range done {
		switch what {
		case "parked":
			r.cfg.Logger.Error("relay: event parked", "slot", slot, "event", batch[i].ID, "error", batch[i].Error)
		case "failed", "back":
			retry = true
		}
	}
	if retry {
		r.schedule.add(slot, time.Now())
	}
}
