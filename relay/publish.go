package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
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
	settlements := make(map[int][]script.Settlement)
	var sound []leased
	var messages []*message.RawMessage
	for _, e := range events {
		msg, err := outbox.Decode(e.body)
		if err != nil {
			settlements[e.slot] = append(settlements[e.slot], script.Settlement{ID: e.id, What: "parked", Lease: e.lease, Error: err.Error()})
			continue
		}
		sound, messages = append(sound, e), append(messages, msg)
	}
	bounded, cancel := context.WithDeadline(ctx, deadline)
	errs := r.send(bounded, messages)
	cancel()
	if ctx.Err() != nil { // stopped in the middle: not the events' fault
		for i := range errs {
			if errs[i] != nil {
				errs[i] = Unavailable(errs[i])
			}
		}
	}
	pause := r.outage.note(errs)
	for i, e := range sound {
		settlements[e.slot] = append(settlements[e.slot], settlement(e, errs[i], pause))
	}
	for slot, batch := range settlements {
		r.settle(ctx, slot, batch)
	}
}

// send calls the publisher and returns an error for each message.
func (r *Relay) send(ctx context.Context, messages []*message.RawMessage) (errs []error) {
	n := len(messages)
	defer func() {
		if p := recover(); p != nil {
			errs = fill(n, fmt.Errorf("relay: the publisher panicked: %v", p))
		}
	}()
	if n == 0 {
		return nil
	}
	switch errs = r.publisher.Publish(ctx, messages); {
	case errs == nil:
		return make([]error, n)
	case len(errs) != n:
		return fill(n, fmt.Errorf("relay: the publisher answered %d times to %d events", len(errs), n))
	}
	return errs
}

func fill(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
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

// outage is a Publisher that is unavailable.
type outage struct {
	log *slog.Logger
	cap time.Duration

	mu    sync.Mutex
	tries int
	until time.Time
}

// note looks at the answers to a batch, and returns how long to pause.
func (o *outage) note(errs []error) time.Duration {
	var down error
	for _, err := range errs {
		if errors.Is(err, ErrUnavailable) {
			down = err
			break
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if down == nil {
		if o.tries > 0 && len(errs) > 0 {
			o.log.Info("relay: the publisher is available again", "tries", o.tries)
			o.tries, o.until = 0, time.Time{}
		}
		return 0
	}
	if o.tries == 0 {
		o.log.Error("relay: the publisher is unavailable; pausing", "error", down)
	}
	o.tries++
	ceiling := min(firstPause<<min(o.tries, 20), o.cap)
	pause := ceiling/2 + rand.N(ceiling/2+1)
	o.until = time.Now().Add(pause)
	return pause
}

func (o *outage) left() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Until(o.until)
}

func (o *outage) paused() bool { return o.left() > 0 }
