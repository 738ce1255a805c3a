package script

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Claimed is a due event under a lease.
type Claimed struct {
	ID      string
	Attempt int
	Body    []byte
}

// Claim is what a claim found.
type Claim struct {
	Lease   string
	Events  []Claimed
	Parked  int // events that had used up their attempts
	Orphans int // index members without a body, removed
	// Next is how long after the claim the next event is due; negative: none waits.
	Next time.Duration
}

// Claim takes up to limit due events of a shard under a lease.
func (s *Set) Claim(ctx context.Context, shard Shard, limit int, lease time.Duration, attempts int) (Claim, error) {
	keys := shard.keys(keyVoid, keyInboxA, keyEntries, keyPending, keyAttempts, keyLeases, keyErrors, keyParked, keySeq)
	reply, err := s.eval(ctx, &s.claim, keys, []any{limit, lease.Milliseconds(), attempts})
	if err != nil {
		return Claim{}, err
	}
	now, rows, err := timed(reply)
	if err != nil {
		return Claim{}, err
	}
	if rows[0] == string(Identity) {
		return Claim{}, fmt.Errorf("the shard of slot %d belongs to %q", shard.Slot, rows[1])
	}
	if len(rows) < 4 || len(rows)%3 != 1 {
		return Claim{}, malformed("claim", reply)
	}
	claim := Claim{Next: -1}
	if due, _ := rows[0].(string); due != "" {
		ms, _ := strconv.ParseInt(due, 10, 64)
		claim.Next = max(0, time.UnixMilli(ms).Sub(now))
	}
	claim.Lease, _ = rows[1].(string)
	claim.Parked, claim.Orphans = number(rows[2]), number(rows[3])
	for row := rows[4:]; len(row) > 0; row = row[3:] {
		id, _ := row[0].(string)
		body, _ := row[2].(string)
		claim.Events = append(claim.Events, Claimed{id, number(row[1]), []byte(body)})
	}
	return claim, nil
}

func number(v any) int {
	n, _ := v.(int64)
	return int(n)
}

// Settlement is the fate of one event after a publish.
type Settlement struct {
	ID    string
	What  string // sent, failed, parked, back
	Lease string // empty: the committer's own
	// Number is the jitter in [0, 1) of a failed one, and the pause in ms of one that is given back.
	Number float64
	Error  string
}

// Backoff is how a failed event is tried again.
type Backoff struct {
	Attempts  int
	Base, Cap time.Duration
}

// Settle settles a batch of events and returns for each what was done: its What, parked where a failed one
// used up its attempts, or stale where nothing was.
func (s *Set) Settle(ctx context.Context, shard Shard, backoff Backoff, retention time.Duration, batch []Settlement) ([]string, error) {
	keys := shard.keys(keyVoid, keyEntries, keyPending, keyAttempts, keyLeases, keyErrors, keyParked, keySent)
	args := make([]any, 0, 4+5*len(batch))
	args = append(args, backoff.Attempts, backoff.Base.Milliseconds(), backoff.Cap.Milliseconds(), retention.Milliseconds())
	for _, b := range batch {
		args = append(args, b.ID, b.What, b.Lease, b.Number, b.Error)
	}
	reply, err := s.eval(ctx, &s.settle, keys, args)
	if err != nil {
		return nil, err
	}
	_, rows, err := timed(reply)
	if err != nil || len(rows) != len(batch) {
		return nil, malformed("settle", reply)
	}
	done := make([]string, len(rows))
	for i, row := range rows {
		done[i], _ = row.(string)
	}
	return done, nil
}

// Rearm puts parked events back into pending and returns how many it moved.
func (s *Set) Rearm(ctx context.Context, shard Shard, ids []string) (int, error) {
	keys := shard.keys(keyVoid, keyEntries, keyPending, keyAttempts, keyParked)
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	reply, err := s.eval(ctx, &s.rearm, keys, args)
	return number(reply), err
}

// Counts is how many events of a shard are in each state.
type Counts struct{ Pending, Leased, Parked, Sent int64 }

// Counts reads the sizes of a shard's indexes; leased events are among the pending ones.
func (s *Set) Counts(ctx context.Context, shard Shard) (Counts, error) {
	pipe := s.client.Pipeline()
	pending, leased := pipe.ZCard(ctx, shard.Key(keyPending)), pipe.HLen(ctx, shard.Key(keyLeases))
	parked, sent := pipe.ZCard(ctx, shard.Key(keyParked)), pipe.ZCard(ctx, shard.Key(keySent))
	if _, err := pipe.Exec(ctx); err != nil {
		return Counts{}, err
	}
	return Counts{pending.Val(), leased.Val(), parked.Val(), sent.Val()}, nil
}

// Parked is an event that an operator has to look at.
type Parked struct {
	ID       string
	At       time.Time
	Attempts int
	Error    string
	Body     []byte
}

// Parked lists parked events of a shard by age, oldest first.
func (s *Set) Parked(ctx context.Context, shard Shard, offset, limit int64) ([]Parked, error) {
	members, err := s.client.ZRangeWithScores(ctx, shard.Key(keyParked), offset, offset+limit-1).Result()
	if err != nil || len(members) == 0 {
		return nil, err
	}
	list, ids := make([]Parked, len(members)), make([]string, len(members))
	for i, m := range members {
		ids[i], _ = m.Member.(string)
		list[i] = Parked{ID: ids[i], At: time.UnixMilli(int64(m.Score))}
	}
	pipe := s.client.Pipeline()
	bodies := pipe.HMGet(ctx, shard.Key(keyEntries), ids...)
	attempts := pipe.HMGet(ctx, shard.Key(keyAttempts), ids...)
	failures := pipe.HMGet(ctx, shard.Key(keyErrors), ids...)
	if _, err := pipe.Exec(ctx); err != nil && err != redis.Nil { //nolint:errorlint // Nil is compared as go-redis documents
		return nil, err
	}
	for i := range list {
		body, _ := bodies.Val()[i].(string)
		tries, _ := attempts.Val()[i].(string)
		list[i].Body = []byte(body)
		list[i].Attempts, _ = strconv.Atoi(tries)
		list[i].Error, _ = failures.Val()[i].(string)
	}
	return list, nil
}
