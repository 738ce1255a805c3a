package shard

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
)

// Timer is an open timer of a shard. Due has the precision of a millisecond.
type Timer struct {
	Subject string
	Due     time.Time
}

// Expiring is a timer to be decided.
type Expiring struct {
	Timer

	Event  Event
	Marker string // a key of the slot that revokes the timer if it exists; empty: none
}

// SetTimer creates, extends or cancels the timer of a subject. It returns the result of internal/lua/timer.lua.
func (s *Scripts) SetTimer(ctx context.Context, shard Shard, what string, timer Timer) (string, error) {
	_, rows, err := s.run(ctx, s.timer, shard, 1, what, timer.Subject, timer.Due.UnixMilli())
	if err != nil {
		return "", err
	}
	return eval.Word(rows[0]), nil
}

// DueTimers returns due timers, oldest first, and skips the first offset of them. It also returns the time until the
// next timer is due, which is negative if there is none.
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

// Decide decides timers of a shard. If the cut-off is not zero, it decides none that is due later. It returns the
// result of internal/lua/decide.lua for each timer.
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

// Revoke revokes the timer of a subject. The event may be nil. Revoke returns the result of internal/lua/revoke.lua.
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

// FirstTimers returns, by slot, the time at which the first timer is due. Slots without timers are omitted. It only
// reads.
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

// TimersKey returns the key of the open timers of a shard.
func (s Shard) TimersKey() Own { return Own(s.Key(keyDue)) }

// TimerCounts contains the number of open timers, the number of those that are due, and the number of stored decisions.
type TimerCounts struct{ Open, Due, Decided int64 }

// TimerCounts counts the timers of shards. A timer counts as due if it is due at now, in the server's time. It only
// reads.
func (s *Scripts) TimerCounts(ctx context.Context, slots []int, now time.Time) (sum TimerCounts, err error) {
	type counts struct{ open, due, decided *redis.IntCmd }
	replies, err := askSlots(ctx, s, slots, func(pipe redis.Pipeliner, shard Shard) counts {
		due := shard.Key(keyDue)
		return counts{pipe.ZCard(ctx, due), pipe.ZCount(ctx, due, "-inf", eval.Millis(now)), pipe.ZCard(ctx, shard.Key(keyDecided))}
	})
	for _, r := range replies {
		sum.Open, sum.Due, sum.Decided = sum.Open+r.open.Val(), sum.Due+r.due.Val(), sum.Decided+r.decided.Val()
	}
	return sum, err
}

// ListedTimer is an open timer or a decision of a shard.
type ListedTimer struct {
	Subject string
	// State is open, fired or revoked.
	State string
	// Due is zero for a revoked timer, and Decided is zero for an open one.
	Due, Decided time.Time
	// Member identifies the timer among the open timers or the decisions. These are ordered by time, then by Member.
	Member string
}

// The states of timers.
const (
	TimerOpen    = "open"
	TimerFired   = "fired"
	TimerRevoked = "revoked"
)

// TimerPlace is the position at which a page of timers begins: after the given number of timers that have the time At.
type TimerPlace struct {
	At   time.Time
	Skip int64
}

// ListTimers returns a page of a shard's decisions, or of its open timers, ordered by time. If until is not zero, the
// page ends at that time. ListTimers also returns the position at which the next page begins. More reports that there
// may be one. It only reads.
func (s *Scripts) ListTimers(ctx context.Context, shard Shard, decided bool, from TimerPlace, until time.Time, limit int64) (page []ListedTimer, next TimerPlace, more bool, err error) {
	key, by := shard.Key(keyDue), redis.ZRangeBy{Min: "-inf", Max: "+inf", Offset: from.Skip, Count: limit}
	if decided {
		key = shard.Key(keyDecided)
	}
	if !from.At.IsZero() {
		by.Min = eval.Millis(from.At)
	}
	if !until.IsZero() {
		by.Max = eval.Millis(until)
	}
	found, err := s.client.ZRangeByScoreWithScores(ctx, key, &by).Result()
	if err != nil {
		return nil, next, false, err
	}
	next = from
	for _, z := range found {
		member, _ := z.Member.(string)
		at := time.UnixMilli(int64(z.Score))
		if at.Equal(next.At) {
			next.Skip++
		} else {
			next = TimerPlace{at, 1}
		}
		if decided {
			page = append(page, decisionOf(member, at))
		} else {
			page = append(page, ListedTimer{Subject: member, State: TimerOpen, Due: at, Member: member})
		}
	}
	return page, next, int64(len(found)) == limit, nil
}

// decisionOf parses a member of the decisions; see internal/lua/_timers.lua.
func decisionOf(member string, at time.Time) ListedTimer {
	if subject, ok := strings.CutPrefix(member, "r"); ok {
		return ListedTimer{Subject: subject, State: TimerRevoked, Decided: at, Member: member}
	}
	due, subject, _ := strings.Cut(strings.TrimPrefix(member, "e"), " ")
	return ListedTimer{Subject: subject, State: TimerFired, Due: eval.Moment(due), Decided: at, Member: member}
}

// FindTimer returns the open timer or the revocation of a subject, by slot. Slots that have neither are omitted. It
// only reads.
func (s *Scripts) FindTimer(ctx context.Context, slots []int, subject string) (map[int]ListedTimer, error) {
	type scores struct{ open, revoked *redis.FloatCmd }
	replies, _ := askSlots(ctx, s, slots, func(pipe redis.Pipeliner, shard Shard) scores {
		return scores{pipe.ZScore(ctx, shard.Key(keyDue), subject), pipe.ZScore(ctx, shard.Key(keyDecided), "r"+subject)}
	})
	found := map[int]ListedTimer{}
	for i, r := range replies {
		for _, cmd := range []*redis.FloatCmd{r.open, r.revoked} {
			if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
				return nil, &SlotError{slots[i], err}
			}
		}
		if r.revoked.Err() == nil {
			found[slots[i]] = decisionOf("r"+subject, time.UnixMilli(int64(r.revoked.Val())))
		}
		if r.open.Err() == nil {
			found[slots[i]] = ListedTimer{Subject: subject, State: TimerOpen, Due: time.UnixMilli(int64(r.open.Val())), Member: subject}
		}
	}
	return found, nil
}

// HasTimers returns the slots whose shards have open timers, or decisions.
func (s *Scripts) HasTimers(ctx context.Context, slots []int, decided bool) ([]int, error) {
	if decided {
		return s.having(ctx, slots, keyDecided)
	}
	return s.having(ctx, slots, keyDue)
}
