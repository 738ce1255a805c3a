package shard

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
)

// Timer is an open timer of a shard. Due has the precision of a millisecond.
type Timer struct {
	Subject string
	Due     time.Time
}

// Expiring is a timer that is to be decided.
type Expiring struct {
	Timer

	Event  Event
	Marker string // a key of the slot whose existence revokes; empty: none
}

// SetTimer records, extends or cancels the timer of a subject, and returns what internal/lua/timer.lua says became of it.
func (s *Scripts) SetTimer(ctx context.Context, shard Shard, what string, timer Timer) (string, error) {
	_, rows, err := s.run(ctx, s.timer, shard, 1, what, timer.Subject, timer.Due.UnixMilli())
	if err != nil {
		return "", err
	}
	return eval.Word(rows[0]), nil
}

// DueTimers returns timers that are due, oldest first, after the first offset of them; and how long after that the next
// one will be, negative where there is none.
func (s *Scripts) DueTimers(ctx context.Context, shard Shard, offset, limit int) ([]Timer, time.Duration, error) {
	now, rows, err := s.run(ctx, s.due, shard, 0, offset, limit)
	if err == nil && len(rows)%2 == 0 {
		err = eval.Malformed("due", rows)
	}
	if err != nil {
		return nil, 0, err
	}
	next := time.Duration(-1)
	if later := eval.Word(rows[0]); later != "" {
		next = max(0, eval.Moment(later).Sub(now))
	}
	timers := make([]Timer, 0, len(rows)/2)
	for rows = rows[1:]; len(rows) > 0; rows = rows[2:] {
		timers = append(timers, Timer{eval.Word(rows[0]), eval.Moment(eval.Word(rows[1]))})
	}
	return timers, next, nil
}

// Decide decides timers of a shard, none later than the cut-off where that is not zero, and returns for each what
// internal/lua/decide.lua says.
func (s *Scripts) Decide(ctx context.Context, shard Shard, cutoff time.Time, batch []Expiring) ([]string, error) {
	keys, args := shard.keysOf("decide"), make([]any, 0, 1+5*len(batch))
	if cutoff.IsZero() {
		args = append(args, "")
	} else {
		args = append(args, cutoff.UnixMilli())
	}
	for _, e := range batch {
		args = append(args, e.Subject, e.Due.UnixMilli(), e.Event.ID, Stored(e.Event.Body, e.Event.Given), e.Marker)
		if e.Marker != "" {
			keys = append(keys, e.Marker)
		}
	}
	_, rows, err := s.runOn(ctx, s.decide, shard, keys, len(batch), args)
	if err != nil {
		return nil, err
	}
	done := make([]string, len(batch))
	for i, row := range rows {
		done[i] = eval.Word(row)
	}
	return done, nil
}

// Revoke revokes the timer of a subject, with an event or nil, and returns what internal/lua/revoke.lua says.
func (s *Scripts) Revoke(ctx context.Context, shard Shard, subject string, event *Event) (string, error) {
	args := []any{subject}
	if event != nil {
		args = append(args, event.ID, Stored(event.Body, event.Given))
	}
	_, rows, err := s.run(ctx, s.revoke, shard, 1, args...)
	if err != nil {
		return "", err
	}
	return eval.Word(rows[0]), nil
}

// FirstTimers returns when the first timer of each slot is due, as far as there is one: by slot. It only reads.
func (s *Scripts) FirstTimers(ctx context.Context, slots []int) (map[int]time.Time, error) {
	replies, err := askSlots(ctx, s, slots, func(pipe redis.Pipeliner, shard Shard) *redis.ZSliceCmd {
		return pipe.ZRangeWithScores(ctx, shard.Key(keyDue), 0, 0)
	})
	first := make(map[int]time.Time)
	for i, reply := range replies {
		if head := reply.Val(); reply.Err() == nil && len(head) > 0 {
			first[slots[i]] = time.UnixMilli(int64(head[0].Score))
		}
	}
	return first, err
}

// TimersKey names the open timers of a shard.
func (s Shard) TimersKey() Own { return Own(s.Key(keyDue)) }
