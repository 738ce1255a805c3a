package expiry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/message"
)

// Decision is the outcome of a timer.
type Decision int

// The decisions. With an error, the decision is zero: nothing was decided.
const (
	// Enqueued means that this call added the event to the outbox and closed the timer.
	Enqueued Decision = iota + 1
	// Revoked means that the timer was revoked before. There is no event, and there never will be one.
	Revoked
	// AlreadyEnqueued means that an earlier decision added the event to the outbox.
	AlreadyEnqueued
	// NotDue means that nothing changed: the timer is not due, is due after the cut-off, was moved or cancelled, or was never
	// recorded.
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
	full  Decision = -1 - iota // the outbox is full
	other                      // the outbox has another event with the id
)

var decisions = map[string]Decision{
	"enqueued": Enqueued, "revoked": Revoked, "already": AlreadyEnqueued, "not due": NotDue, "full": full, "other": other,
}

// otherError returns the error for an event whose id another event in the outbox has.
func otherError(id string) error {
	return fmt.Errorf("the outbox has another event under the id %s; return a different id for each timer from Config.EventID, or cancel the timer if its event was sent before", id)
}

// Decide closes a due timer and adds its event to the outbox in one step, unless the timer was revoked. Pass the timer as Due
// returned it: if it was moved since, Decide returns NotDue. The event's id must be empty or the result of Config.EventID. If the
// timer is due after cutoff, Decide also returns NotDue. A zero cutoff disables that check. In any case, the server's clock must
// have reached the timer.
//
// If the outbox is full, Decide returns luatx.ErrOutboxFull. If the outbox has another event with the id, Decide returns an
// error. In both cases nothing changes, and the timer stays open.
func (s *Store) Decide(ctx context.Context, timer Timer, event *message.Message, cutoff time.Time) (Decision, error) {
	home, err := s.shard(timer.Subject)
	if err != nil {
		return 0, err
	}
	expiring, err := s.prepare(home, timer, event)
	if err != nil {
		return 0, err
	}
	done, err := s.decide(ctx, home, []shard.Expiring{expiring}, cutoff)
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

// prepare converts a timer and its event for the script.
func (s *Store) prepare(home shard.Shard, timer Timer, event *message.Message) (shard.Expiring, error) {
	if event == nil {
		return shard.Expiring{}, fmt.Errorf("expiry: timer of %q: the event is nil; pass an event", timer.Subject)
	}
	id, err := s.eventID(timer)
	if err != nil {
		return shard.Expiring{}, fmt.Errorf("expiry: timer of %q: %w", timer.Subject, err)
	}
	if given := event.ID(); given != "" && given != id {
		return shard.Expiring{}, fmt.Errorf("expiry: timer of %q: the event has the id %q; leave the id empty, luatx sets %s", timer.Subject, given, id)
	}
	encoded, err := encode(event, id)
	if err != nil {
		return shard.Expiring{}, fmt.Errorf("expiry: timer of %q: %w", timer.Subject, err)
	}
	marker, err := s.cfg.RevokedKey(timer.Subject)
	if err != nil {
		return shard.Expiring{}, fmt.Errorf("expiry: Config.RevokedKey of %q: %w", timer.Subject, err)
	}
	if marker != "" && slot.Of(marker) != home.Slot {
		return shard.Expiring{}, fmt.Errorf("%w: Config.RevokedKey of %q: %q hashes to slot %d, the timer's is %d",
			luatx.ErrCrossSlot, timer.Subject, marker, slot.Of(marker), home.Slot)
	}
	return shard.Expiring{Timer: shard.Timer(timer), Event: encoded, Marker: marker}, nil
}

// decide decides timers of one shard, and notifies the relay of this process of their events.
func (s *Store) decide(ctx context.Context, home shard.Shard, batch []shard.Expiring, cutoff time.Time) ([]Decision, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	words, err := s.scripts.Decide(ctx, home, cutoff, batch)
	if err != nil {
		return nil, err
	}
	done := make([]Decision, len(words))
	var events []shard.Event
	for i, word := range words {
		decision, known := decisions[word]
		if !known {
			return nil, errors.New("the script returned " + word)
		}
		done[i] = decision
		if done[i] == Enqueued {
			events = append(events, batch[i].Event)
		}
	}
	link.Of(s.transactor).Announce(home.Slot, events...)
	return done, nil
}
