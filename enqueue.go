package luatx

import (
	"context"
	"errors"
	"fmt"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
)

// Enqueue adds events to the outbox of an aggregate's shard outside of a transaction, either all of them or none. It returns the
// number of new events. Every event must have an id: Enqueue is idempotent by id and does not count an event that the outbox
// already has with the same body. The limits of a transaction apply; Config.Durability does not.
//
// Enqueue returns the errors of a transaction: ErrTooLarge, *OutboxFullError, ErrKeyspace, *RefusedError, and a *CommandError
// with a negative Index if the outbox has an event's id with another body. If the server does not reply before ctx ends or
// CommitTimeout passes, it returns ErrOutcomeUnknown without a receipt; enqueue the same events again.
func (t *Transactor) Enqueue(ctx context.Context, aggregate string, events ...Event) (int, error) {
	tag, err := t.cfg.Keyspace.Tag(aggregate)
	if err != nil {
		return 0, err
	}
	batch, err := t.entrants(events)
	if err != nil || len(batch) == 0 {
		return 0, err
	}
	home := t.shards.Shard(slot.OfTag(tag))
	added, err := t.enqueue(ctx, home, batch)
	if err != nil {
		return 0, &commit.EnqueueError{Err: err}
	}
	if added > 0 {
		t.inside.Announce(home.Slot, batch...)
	}
	return added, nil
}

// enqueue sends checked events to a shard and returns the number of new ones.
func (t *Transactor) enqueue(ctx context.Context, home shard.Shard, batch []shard.Event) (int, error) {
	if err := t.ensureChecked(ctx, home); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.cfg.CommitTimeout)
	defer cancel()
	entrance, err := t.commits.Enqueue(ctx, home, batch)
	switch {
	case errors.Is(err, eval.ErrUnknown):
		return 0, fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	case err != nil:
		return 0, t.serverError(err)
	case entrance.State == commit.Failed:
		return 0, &CommandError{Index: -entrance.Index, Text: entrance.Text}
	case entrance.State != commit.Committed:
		return 0, outcomeError(&commit.Outcome{State: entrance.State, Text: entrance.Text}, &Tx{t: t, home: home})
	}
	return entrance.New, nil
}

// entrants checks and encodes events that are enqueued together.
func (t *Transactor) entrants(events []Event) ([]shard.Event, error) {
	if len(events) > t.cfg.MaxCommands {
		return nil, fmt.Errorf("%w: %d events, more than MaxCommands, %d", ErrTooLarge, len(events), t.cfg.MaxCommands)
	}
	batch, size := make([]shard.Event, len(events)), 0
	for i, event := range events {
		stored, err := event.encode(&t.cfg, "", nil)
		if err != nil {
			return nil, err
		}
		batch[i] = stored
		size += len(stored.ID) + len(stored.Body)
	}
	if size > t.cfg.MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, more than MaxBytes, %d", ErrTooLarge, size, t.cfg.MaxBytes)
	}
	return batch, nil
}
