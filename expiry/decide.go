package expiry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/script"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/message"
)

// Decision is what became of a timer.
type Decision int

// The decisions. The zero value stands beside an error: nothing was decided.
const (
	// Enqueued: the event is in the outbox now, and the timer closed.
	Enqueued Decision = iota + 1
	// Revoked: the timer was revoked before; there is no event, and never will be.
	Revoked
	// AlreadyEnqueued: the event is in the outbox, or was, by an earlier decision.
	AlreadyEnqueued
	// NotDue: nothing was done. The time has not come, lies after the cut-off or was moved, or the timer was
	// cancelled or never recorded.
	NotDue
)

// String returns the decision in lower case.
func (d Decision) String() string {
	if d < Enqueued || d > NotDue {
		return "not decided"
	}
	return [...]string{"enqueued", "revoked", "already enqueued", "not due"}[d-1]
}

// Outcomes of the script that leave the timer open and become errors.
const (
	full  Decision = -1 - iota // the outbox has no room
	other                      // the outbox has another event under the id
)

var decisions = map[string]Decision{
	"enqueued": Enqueued, "revoked": Revoked, "already": AlreadyEnqueued, "not due": NotDue, "full": full, "other": other,
}

// otherError reports an event whose id belongs to another event in the outbox.
func otherError(id string) error {
	return fmt.Errorf("the outbox has another event under the id %s; return an id of its own for each timer from Config.EventID, or cancel the timer if its event was sent before", id)
}

// Decide closes a timer that is due and puts its event into the outbox, in one step, unless it was revoked. The timer is
// given as it was found: moved meanwhile, it is NotDue. The event's id is what Config.EventID returns: leave it empty or
// set that. A cut-off keeps back what is due later than that; the zero time: the server's clock alone decides, which it
// does in any case.
//
// If the outbox has no room, the error is luatx.ErrOutboxFull. If the outbox has another event under the id, Decide
// returns an error as well. Nothing has changed then, and the timer stays open.
func (s *Store) Decide(ctx context.Context, timer Timer, event *message.Message, cutoff time.Time) (Decision, error) {
	shard, err := s.shard(timer.Subject)
	if err != nil {
		return 0, err
	}
	expiring, err := s.prepare(shard, timer, event)
	if err != nil {
		return 0, err
	}
	done, err := s.decide(ctx, shard, []script.Expiring{expiring}, cutoff)
	switch {
	case err != nil:
		return 0, fmt.Errorf("expiry: decide %q: %w", timer.Subject, err)
	case done[0] == full:
		return 0, fmt.Errorf("expiry: decide %q: %w", timer.Subject, luatx.ErrOutboxFull)
	case done[0] == other:
		return 0, fmt.Errorf("expiry: decide %q: %w", timer.Subject, otherError(expiring.Event.ID))
	}
	return done[0], nil
}

// prepare lays a timer out for the script.
func (s *Store) prepare(shard script.Shard, timer Timer, event *message.Message) (script.Expiring, error) {
	if event == nil {
		return script.Expiring{}, fmt.Errorf("expiry: timer of %q: there is no event", timer.Subject)
	}
	id, err := s.eventID(timer)
	if err != nil {
		return script.Expiring{}, fmt.Errorf("expiry: timer of %q: %w", timer.Subject, err)
	}
	if given := event.ID(); given != "" && given != id {
		return script.Expiring{}, fmt.Errorf("expiry: timer of %q: the event's id is %q: leave it empty, it is %s", timer.Subject, given, id)
	}
	encoded, err := encode(event, id)
	if err != nil {
		return script.Expiring{}, fmt.Errorf("expiry: timer of %q: %w", timer.Subject, err)
	}
	marker, err := s.cfg.RevokedKey(timer.Subject)
	if err != nil {
		return script.Expiring{}, fmt.Errorf("expiry: Config.RevokedKey of %q: %w", timer.Subject, err)
	}
	if marker != "" && slot.Of(marker) != shard.Slot {
		return script.Expiring{}, fmt.Errorf("%w: Config.RevokedKey of %q: %q hashes to slot %d, the timer's is %d",
			luatx.ErrCrossSlot, timer.Subject, marker, slot.Of(marker), shard.Slot)
	}
	return script.Expiring{Timer: script.Timer(timer), Event: encoded, Marker: marker}, nil
}

// decide decides timers of one shard, and tells the relay of this process of their events.
func (s *Store) decide(ctx context.Context, shard script.Shard, batch []script.Expiring, cutoff time.Time) ([]Decision, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	words, err := s.scripts.Decide(ctx, shard, cutoff, batch)
	if err != nil {
		return nil, err
	}
	done := make([]Decision, len(words))
	var events []luatx.Event
	for i, word := range words {
		decision, known := decisions[word]
		if !known {
			return nil, errors.New("the script answers " + word)
		}
		done[i] = decision
		if done[i] == Enqueued {
			events = append(events, luatx.Event(batch[i].Event))
		}
	}
	s.transactor.Announce(shard.Slot, events...)
	return done, nil
}
