package luatx

import (
	"context"
	"errors"
	"fmt"

	"github.com/luatx/luatx/internal/script"
	"github.com/luatx/luatx/internal/slot"
)

// Enqueue puts events into the outbox of an aggregate's shard beside any transaction: all of them, or none. It is
// idempotent by their ids, which they must have: an event that is known already, with the same body, is not counted
// among the new ones. The same limits hold as in a transaction, and the errors are the same; where there was no answer
// in time it is ErrOutcomeUnknown: enqueue the same events again. Config.Durability does not apply.
func (t *Transactor) Enqueue(ctx context.Context, aggregate string, events ...Event) (int, error) {
	tag, err := t.cfg.Keyspace.Tag(aggregate)
	if err != nil {
		return 0, err
	}
	batch, err := t.entrants(events)
	if err != nil || len(batch) == 0 {
		return 0, err
	}
	if err := t.ensureChecked(ctx); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.cfg.CommitTimeout)
	defer cancel()
	shard := t.scripts.Shard(slot.OfTag(tag))
	entrance, err := t.scripts.Enqueue(ctx, shard, batch)
	switch {
	case errors.Is(err, script.ErrUnknown):
		return 0, fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	case err != nil:
		return 0, t.serverError(err)
	case entrance.State == script.Failed:
		return 0, &CommandError{Index: -entrance.Index, Text: entrance.Text}
	case entrance.State != script.Committed:
		return 0, outcomeError(&script.Outcome{State: entrance.State, Text: entrance.Text}, &Tx{t: t, shard: shard})
	}
	if entrance.New > 0 {
		t.Announce(shard.Slot, events...)
	}
	return entrance.New, nil
}

// entrants checks events that are enqueued together.
func (t *Transactor) entrants(events []Event) ([]script.Event, error) {
	if len(events) > t.cfg.MaxCommands {
		return nil, fmt.Errorf("%w: %d events, more than MaxCommands, %d", ErrTooLarge, len(events), t.cfg.MaxCommands)
	}
	batch, size := make([]script.Event, len(events)), 0
	for i, event := range events {
		if err := event.check(&t.cfg); err != nil {
			return nil, err
		}
		batch[i] = script.Event(event)
		size += len(event.ID) + len(event.Body)
	}
	if size > t.cfg.MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, more than MaxBytes, %d", ErrTooLarge, size, t.cfg.MaxBytes)
	}
	return batch, nil
}
