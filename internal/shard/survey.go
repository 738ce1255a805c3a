package shard

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// SlotError is an error of the shard of a slot.
type SlotError struct {
	Slot int
	Err  error
}

func (e *SlotError) Error() string { return "slot " + strconv.Itoa(e.Slot) + ": " + e.Err.Error() }
func (e *SlotError) Unwrap() error { return e.Err }

// Counts is the number of events of a shard in each state. Leased events count as pending. The counters cover all time.
type Counts struct {
	Entries, Pending, Leased, Parked, Sent int64

	Totals map[string]int64 // by the name in the shard: bytes, enqueued, duplicate …
}

// Events returns the number of events that are neither sent nor parked.
func (c Counts) Events() int64 { return max(0, c.Entries-c.Sent-c.Parked) }

// Counts reads the sizes of the indexes of shards, and their counters, by slot. Shards that have neither are omitted.
func (s *Scripts) Counts(ctx context.Context, slots []int) (map[int]Counts, error) {
	existing, err := s.having(ctx, slots, keyEntries, keyCounts, keyPending, keyParked, keySent)
	if err != nil {
		return nil, err
	}
	counts := make(map[int]Counts, len(existing))
	for try := 0; len(existing) > 0; try++ {
		if existing, err = s.countOnce(ctx, existing, counts, try == countTries); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// countTries is how often a shard is read again because its events have changed states meanwhile. The number of events that
// were ever enqueued is computed from several sizes, and would decrease. Reading a few shards is practically atomic.
const countTries = 3

// sizes are the replies about a shard. The counters are read before and after the sizes.
type sizes struct {
	before, after            *redis.MapStringStringCmd
	entries, leased, pending *redis.IntCmd
	parked, sent             *redis.IntCmd
}

// countOnce reads shards in one pipeline, and returns those whose events have changed states meanwhile, unless it is the last try.
func (s *Scripts) countOnce(ctx context.Context, slots []int, counts map[int]Counts, last bool) (changing []int, err error) {
	replies, _ := askSlots(ctx, s, slots, func(pipe redis.Pipeliner, shard Shard) (r sizes) { // each command contains its error
		r.before = pipe.HGetAll(ctx, shard.Key(keyCounts))
		r.entries, r.sent, r.parked = pipe.HLen(ctx, shard.Key(keyEntries)), pipe.ZCard(ctx, shard.Key(keySent)), pipe.ZCard(ctx, shard.Key(keyParked))
		r.pending, r.leased = pipe.ZCard(ctx, shard.Key(keyPending)), pipe.ZCount(ctx, shard.Key(keyPending), "-inf", "(0")
		r.after = pipe.HGetAll(ctx, shard.Key(keyCounts))
		return r
	})
	for i, r := range replies {
		for _, cmd := range []redis.Cmder{r.before, r.entries, r.pending, r.leased, r.parked, r.sent, r.after} {
			if err := cmd.Err(); err != nil {
				return nil, &SlotError{slots[i], err}
			}
		}
		if !last && r.changed() {
			changing = append(changing, slots[i])
			continue
		}
		c := Counts{r.entries.Val(), r.pending.Val(), r.leased.Val(), r.parked.Val(), r.sent.Val(), nil}
		c.Totals = CountsOf(r.after.Val(), c.Events())
		counts[slots[i]] = c
	}
	return changing, nil
}

// changed reports whether events have changed states. Events that were added do not count: only the number of bodies depends on
// them.
func (r sizes) changed() bool {
	before, after := maps.Clone(r.before.Val()), maps.Clone(r.after.Val())
	delete(before, fieldBytes)
	delete(after, fieldBytes)
	return !maps.Equal(before, after)
}

func integers(fields map[string]string) map[string]int64 {
	values := make(map[string]int64, len(fields))
	for name, text := range fields {
		values[name], _ = strconv.ParseInt(text, 10, 64)
	}
	return values
}

// ParkedBy returns the total number of parked events by destination (d:), type (t:) and class (c:).
func (s *Scripts) ParkedBy(ctx context.Context, slots []int) (map[string]int64, error) {
	replies, _ := askSlots(ctx, s, slots, func(pipe redis.Pipeliner, shard Shard) *redis.MapStringStringCmd {
		return pipe.HGetAll(ctx, shard.Key(keyParkedBy))
	})
	sum := map[string]int64{}
	for i, reply := range replies {
		if reply.Err() != nil {
			return nil, &SlotError{slots[i], reply.Err()}
		}
		for name, n := range integers(reply.Val()) {
			sum[name] += n
		}
	}
	return sum, nil
}

// Edge is the first or the last member of a shard's index.
type Edge struct {
	Slot int
	At   time.Time
}

// Firsts returns the time at which a relay can claim the first event of each shard with pending events: an event is due
// or a lease ends at that time.
func (s *Scripts) Firsts(ctx context.Context, slots []int) ([]Edge, error) {
	type firsts struct{ due, leased *redis.ZSliceCmd }
	one := redis.ZRangeBy{Min: "0", Max: "+inf", Count: 1}
	replies, _ := askSlots(ctx, s, slots, func(pipe redis.Pipeliner, shard Shard) firsts {
		key := shard.Key(keyPending)
		return firsts{pipe.ZRangeByScoreWithScores(ctx, key, &one), pipe.ZRangeWithScores(ctx, key, 0, 0)}
	})
	var edges []Edge
	for i, reply := range replies {
		if err := cmp.Or(reply.due.Err(), reply.leased.Err()); err != nil {
			return nil, &SlotError{slots[i], err}
		}
		for _, found := range append(reply.due.Val(), reply.leased.Val()...) {
			at := timeOf(found.Score)
			if last := len(edges) - 1; last < 0 || edges[last].Slot != slots[i] {
				edges = append(edges, Edge{slots[i], at})
			} else if at.Before(edges[last].At) {
				edges[last].At = at
			}
		}
	}
	return edges, nil
}

// leased is the number that internal/lua/_lease.lua subtracts from the end of a lease (ms) to get a score.
const leased = 10_000_000_000_000

// timeOf returns the time that a score of an index represents.
func timeOf(score float64) time.Time {
	if score < 0 {
		score += leased
	}
	return time.UnixMilli(int64(score))
}

// LastParked returns the time at which the last event was parked, for each shard that has parked events.
func (s *Scripts) LastParked(ctx context.Context, slots []int) ([]Edge, error) {
	return s.edges(ctx, slots, keyParked, -1)
}

// FirstParked returns the time at which the first event was parked, for each shard that has parked events.
func (s *Scripts) FirstParked(ctx context.Context, slots []int) ([]Edge, error) {
	return s.edges(ctx, slots, keyParked, 0)
}

// FirstBlocking returns the time at which the first event was parked, for each shard that has parked events and ordered
// events.
func (s *Scripts) FirstBlocking(ctx context.Context, slots []int) ([]Edge, error) {
	edges, err := s.FirstParked(ctx, slots)
	if err != nil || len(edges) == 0 {
		return nil, err
	}
	parked := make([]int, len(edges))
	for i, edge := range edges {
		parked[i] = edge.Slot
	}
	ordered, err := s.HasLanes(ctx, parked)
	return slices.DeleteFunc(edges, func(edge Edge) bool { return !slices.Contains(ordered, edge.Slot) }), err
}

// LastSent returns the time at which the last event was sent, for each shard that has sent events.
func (s *Scripts) LastSent(ctx context.Context, slots []int) ([]Edge, error) {
	return s.edges(ctx, slots, keySent, -1)
}

func (s *Scripts) edges(ctx context.Context, slots []int, key string, rank int64) ([]Edge, error) {
	replies, _ := askSlots(ctx, s, slots, func(pipe redis.Pipeliner, shard Shard) *redis.ZSliceCmd {
		return pipe.ZRangeWithScores(ctx, shard.Key(key), rank, rank)
	})
	var edges []Edge
	for i, reply := range replies {
		if reply.Err() != nil {
			return nil, &SlotError{slots[i], reply.Err()}
		}
		if found := reply.Val(); len(found) > 0 {
			edges = append(edges, Edge{slots[i], timeOf(found[0].Score)})
		}
	}
	return edges, nil
}

// HasLanes returns the slots whose shards have ordered events.
func (s *Scripts) HasLanes(ctx context.Context, slots []int) ([]int, error) {
	return s.having(ctx, slots, keyLanes)
}

// HasAudit returns the slots whose shards have an audit stream.
func (s *Scripts) HasAudit(ctx context.Context, slots []int) ([]int, error) {
	return s.having(ctx, slots, keyAudit)
}

// HasFailures returns the slots whose shards have events with failed attempts.
func (s *Scripts) HasFailures(ctx context.Context, slots []int) ([]int, error) {
	return s.having(ctx, slots, keyErrors)
}

// having returns the slots whose shards have at least one of the keys.
func (s *Scripts) having(ctx context.Context, slots []int, keys ...string) ([]int, error) {
	replies, _ := askSlots(ctx, s, slots, func(pipe redis.Pipeliner, shard Shard) *redis.IntCmd {
		return pipe.Exists(ctx, shard.keys(slices.Clone(keys)...)...)
	})
	var found []int
	for i, reply := range replies {
		if reply.Err() != nil {
			return nil, &SlotError{slots[i], reply.Err()}
		}
		if reply.Val() > 0 {
			found = append(found, slots[i])
		}
	}
	return found, nil
}

// Waiting returns the given slots that have waiting events, due or not. It only reads.
func (s *Scripts) Waiting(ctx context.Context, slots []int) ([]int, error) {
	replies, err := askSlots(ctx, s, slots, func(pipe redis.Pipeliner, shard Shard) *redis.IntCmd {
		return pipe.Exists(ctx, shard.Key(keyPending))
	})
	var waiting []int
	for i, reply := range replies {
		if reply.Err() == nil && reply.Val() > 0 {
			waiting = append(waiting, slots[i])
		}
	}
	return waiting, err
}
