package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/shard"
)

// Timer is a timer of package expiry.
type Timer struct {
	Slot    int    `json:"slot"`
	Subject string `json:"subject"`
	// State is open, fired or revoked. The decisions fired and revoked are kept for the Retention of the Transactor.
	State string `json:"state"`
	// Due is zero for a revoked timer.
	Due time.Time `json:"due,omitzero"`
	// Decided is when the timer fired or was revoked, by the server's clock. It is zero for an open timer.
	Decided time.Time `json:"decided,omitzero"`

	member string
}

// TimerFilter chooses timers. Its zero value chooses all open ones.
type TimerFilter struct {
	// Decided chooses the decisions that are kept, fired and revoked, in place of open timers.
	Decided bool
	// Due chooses open timers that are due by the server's clock.
	Due bool
	// Text is part of the subject. Defaults to any.
	Text string
	// Slots are those of the shards. Defaults to all.
	Slots []int
	// After continues a list behind a timer, which may have changed since. It is the Cursor of the timer in a list with the same
	// Decided. Defaults to the beginning.
	After string
}

// TimerStats counts the timers of all shards.
type TimerStats struct {
	// Open is the number of open timers, and Due the number of these that are due.
	Open int64 `json:"open"`
	Due  int64 `json:"due"`
	// Decided is the number of decisions that are kept.
	Decided int64 `json:"decided"`
	// Overdue is the age of the longest-overdue timer. A time that grows means that no worker decides.
	Overdue time.Duration `json:"overdue_ns"`
	// Next is when the next open timer is due that is not due yet. It is zero if the first timer of each shard is due, or there is none.
	Next time.Time `json:"next,omitzero"`
}

// ErrTimerNotFound is returned by Timer if no shard has an open or revoked timer of a subject. It may have fired.
var ErrTimerNotFound = errors.New("admin: no shard has an open or revoked timer of the subject")

// timerPage is the number of timers that one command reads.
const timerPage = 256

// TimerStats counts the timers of all shards. It reads no timer but the first of each shard.
func (o *Operator) TimerStats(ctx context.Context) (s TimerStats, err error) {
	now, err := o.core.Client.Time(ctx).Result()
	if err != nil {
		return s, fmt.Errorf("admin: timer stats: %w", err)
	}
	for chunk := range slices.Chunk(o.transactor.Keyspace().Slots(), slotsAtOnce) {
		counts, err := o.scripts.TimerCounts(ctx, chunk, now)
		if err != nil {
			return s, fmt.Errorf("admin: timer stats from slot %d: %w", chunk[0], err)
		}
		s.Open, s.Due, s.Decided = s.Open+counts.Open, s.Due+counts.Due, s.Decided+counts.Decided
		firsts, err := o.scripts.FirstTimers(ctx, chunk)
		if err != nil {
			return s, fmt.Errorf("admin: timer stats from slot %d: %w", chunk[0], err)
		}
		for _, first := range firsts {
			if !first.After(now) {
				s.Overdue = max(s.Overdue, now.Sub(first))
			} else if s.Next.IsZero() || first.Before(s.Next) {
				s.Next = first
			}
		}
	}
	return s, nil
}

// Timers lists timers, shard by shard: open ones by when they are due, decided ones by when they were decided. It is no snapshot:
// a timer that changes meanwhile may be missed or listed twice.
func (o *Operator) Timers(ctx context.Context, f TimerFilter) iter.Seq2[Timer, error] {
	return func(yield func(Timer, error) bool) {
		err := o.timers(ctx, f, func(t Timer) bool { return yield(t, nil) })
		if err != nil {
			yield(Timer{}, fmt.Errorf("admin: timers: %w", err))
		}
	}
}

func (o *Operator) timers(ctx context.Context, f TimerFilter, yield func(Timer) bool) error {
	var until time.Time
	if f.Due && !f.Decided {
		var err error
		if until, err = o.core.Client.Time(ctx).Result(); err != nil {
			return err
		}
	}
	slots, err := o.slotsOf(f.Slots)
	if err != nil {
		return err
	}
	var after timerCursor
	if f.After != "" {
		var err error
		if after, err = parseTimerCursor(f.After); err != nil {
			return err
		}
		i := slices.Index(slots, after.slot)
		if i < 0 {
			return fmt.Errorf("TimerFilter.After is in slot %d, which the filter does not select; use the filter of the previous page", after.slot)
		}
		slots = slots[i:]
	}
	for chunk := range slices.Chunk(slots, slotsAtOnce) {
		having, err := o.scripts.HasTimers(ctx, chunk, f.Decided)
		if err != nil {
			return err
		}
		for _, n := range having {
			if goOn, err := o.timersOf(ctx, n, f, after, until, yield); err != nil || !goOn {
				return err
			}
		}
	}
	return nil
}

// timersOf yields the timers of a shard, and reports whether the list goes on.
func (o *Operator) timersOf(ctx context.Context, n int, f TimerFilter, after timerCursor, until time.Time, yield func(Timer) bool) (bool, error) {
	var from shard.TimerPlace
	if n == after.slot {
		from.At = after.at
	}
	for more := true; more; {
		var page []shard.ListedTimer
		var err error
		page, from, more, err = o.scripts.ListTimers(ctx, o.scripts.Shard(n), f.Decided, from, until, timerPage)
		if err != nil {
			return false, &shard.SlotError{Slot: n, Err: err}
		}
		for _, t := range page {
			timer := newTimer(n, t)
			if !after.includes(timer) && strings.Contains(t.Subject, f.Text) && !yield(timer) {
				return false, nil
			}
		}
	}
	return true, nil
}

func newTimer(slot int, t shard.ListedTimer) Timer {
	return Timer{slot, t.Subject, t.State, t.Due, t.Decided, t.Member}
}

// Timer returns the open or revoked timers of a subject, by slot: one, unless several values of expiry.Config.Aggregate were used. To
// find one that fired, list the decided timers with its subject as Text.
func (o *Operator) Timer(ctx context.Context, subject string) ([]Timer, error) {
	all, err := inEachShard(ctx, o, subject, o.scripts.FindTimer, newTimer)
	if err != nil {
		return nil, fmt.Errorf("admin: timer: %w", err)
	}
	if len(all) == 0 {
		return nil, ErrTimerNotFound
	}
	return all, nil
}
