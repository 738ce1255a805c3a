package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/message"
)

// With returns a copy of the store whose Enqueue creates events from messages like Middleware(cfg).
func (s *Store) With(cfg Config) *Store {
	configured := *s
	configured.events = cfg
	return &configured
}

// Enqueue adds events to the outbox of an aggregate's shard outside of a handler, either all of them or none. It returns the
// number of new events. Every event must have an id, by which Enqueue is idempotent. It notifies the relay of this process.
//
// If the server or the shard does not accept the events, the error is a *StorageError around the error of
// luatx.Transactor.Enqueue, such as *luatx.OutboxFullError or luatx.ErrOutcomeUnknown.
func (s *Store) Enqueue(ctx context.Context, aggregate string, events ...*message.Message) (int, error) {
	batch := make([]luatx.Event, len(events))
	for i, msg := range events {
		if msg == nil || msg.ID() == "" {
			return 0, fmt.Errorf("outbox: enqueue: event %d has no id; set an id that stays the same if the call is repeated", i)
		}
		event, err := s.events.event(ctx, msg, nil)
		if err != nil {
			return 0, fmt.Errorf("outbox: enqueue: event %d: %w", i, err)
		}
		batch[i] = event
	}
	n, err := s.transactor.Enqueue(ctx, aggregate, batch...)
	if failed, ok := errors.AsType[*commit.EnqueueError](err); ok {
		slot, _ := s.Slot(aggregate) // no error: Enqueue has used this shard
		return 0, storageError("enqueue", slot, failed.Err)
	}
	if err != nil {
		return 0, fmt.Errorf("outbox: enqueue: %w", err)
	}
	return n, nil
}

// Cancel removes a scheduled event and reports whether it did. It returns false if the aggregate's shard has no event with that
// id, if the event is not scheduled, or if a relay has claimed it. The id may be used again. If the store names an operator, the
// audit records the act cancel; see As.
func (s *Store) Cancel(ctx context.Context, aggregate, id string) (bool, error) {
	_, done, err := s.schedule(ctx, "cancel", aggregate, id, time.Time{})
	return done, err
}

// Move changes the time of a scheduled event and reports whether it did, like Cancel. The audit has the act move. Move returns an
// error unless the year of at is 1970 to 9999.
func (s *Store) Move(ctx context.Context, aggregate, id string, at time.Time) (bool, error) {
	if at.Before(time.UnixMilli(0)) || at.Year() > 9999 {
		return false, fmt.Errorf("outbox: move %q: the time is %v; use the years 1970 to 9999", id, at)
	}
	home, done, err := s.schedule(ctx, "move", aggregate, id, at)
	if done {
		link.Of(s.transactor).Announce(home.Slot, shard.Event{ID: id, At: at})
	}
	return done, err
}

func (s *Store) schedule(ctx context.Context, op, aggregate, id string, at time.Time) (shard.Shard, bool, error) {
	tag, err := s.keyspace.Tag(aggregate)
	if err != nil {
		return shard.Shard{}, false, err
	}
	if id == "" {
		return shard.Shard{}, false, fmt.Errorf("outbox: %s: the id is empty; set the id of the event", op)
	}
	home := s.scripts.Shard(slot.OfTag(tag))
	if s.operator != "" {
		done, err := s.scheduleRecorded(ctx, op, home.Slot, id, at)
		return home, done, err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	done, err := s.scripts.Schedule(ctx, home, id, at)
	return home, done, storageError(op, home.Slot, err)
}

// scheduleRecorded is schedule for an operator, whose acts the audit records.
func (s *Store) scheduleRecorded(ctx context.Context, op string, n int, id string, at time.Time) (bool, error) {
	why := "by id"
	if !at.IsZero() {
		why += " (to " + at.UTC().Format(time.RFC3339) + ")"
	}
	o, err := s.begin(why)
	if err != nil {
		return false, err
	}
	answers, err := o.call(ctx, op, n, []string{id}, func(ctx context.Context, shard shard.Shard, act shard.Act, ids []string) (string, error) {
		return s.scripts.Change(ctx, shard, act, op, at, ids)
	})
	return answers.Done() == 1, err
}
