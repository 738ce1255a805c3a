package script

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Claimed is an event under a lease.
type Claimed struct {
	ID      string
	Attempt int
	Route   string // its destination; empty: as its body says
	Body    []byte
}

// Claim is what a claim found.
type Claim struct {
	Lease   string
	Events  []Claimed
	Parked  int // events that had used up their attempts
	Orphans int // index members without a body, removed
	// Replicated: everything that the shard had taken is as far as Claiming.Wait asks. Not meant where there are no Events.
	Replicated bool
	// Next is how long after the claim the next event is due; negative: none waits.
	Next time.Duration
}

// Claiming is how due events are taken.
type Claiming struct {
	Limit     int
	Lease     time.Duration
	Attempts  int
	Continues bool // a lane, without its parked events
	Wait      Durability
}

// Claim takes due events of a shard under a lease.
func (s *Set) Claim(ctx context.Context, shard Shard, how Claiming) (Claim, error) {
	args := []any{how.Limit, how.Lease.Milliseconds(), how.Attempts, digit(how.Continues)}
	reply, replicated, err := s.evalDurably(ctx, how.Wait, &s.claim, shard.outboxKeys(), args)
	if err != nil {
		return Claim{}, err
	}
	now, rows, err := ownTimed(shard, reply)
	if err != nil {
		return Claim{}, err
	}
	if len(rows) < 4 || len(rows)%4 != 0 {
		return Claim{}, malformed("claim", reply)
	}
	claim := Claim{Next: -1, Replicated: replicated}
	if due := word(rows[0]); due != "" {
		claim.Next = max(0, moment(due).Sub(now))
	}
	claim.Lease, claim.Parked, claim.Orphans = word(rows[1]), number(rows[2]), number(rows[3])
	claim.Events = claimedIn(rows[4:])
	return claim, nil
}

// claimedIn reads events as lua/claim.lua and lua/settle.lua hand them out.
func claimedIn(rows []any) []Claimed {
	var events []Claimed
	for ; len(rows) > 3; rows = rows[4:] {
		events = append(events, Claimed{word(rows[0]), number(rows[1]), word(rows[2]), []byte(word(rows[3]))})
	}
	return events
}

// ownTimed is timed, and refuses a shard of another keyspace.
func ownTimed(shard Shard, reply any) (time.Time, []any, error) {
	now, rows, err := timed(reply)
	if err == nil && rows[0] == string(Identity) && len(rows) == 2 {
		err = fmt.Errorf("the shard of slot %d belongs to %q", shard.Slot, rows[1])
	}
	return now, rows, err
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
	Class  string // of the error; may be empty for a failed one
	Error  string
}

// Settling is how events are settled.
type Settling struct {
	Attempts  int
	Base, Cap time.Duration // of the pause after a failure
	Retention time.Duration // of sent ids; negative: none
	KeepBody  bool          // of sent events
	Continues bool          // a lane, without its parked events
	Lease     time.Duration // for events that become the heads of their lanes; 0: they are everybody's
}

// Settled is what became of a batch.
type Settled struct {
	Done     []string // of each: its What, parked where a failed one used up its attempts, stale where nothing was done
	Heads    int      // events that have become the heads of their lanes
	Lease    string   // of the promoted ones: those of them that are leased to the caller
	Promoted []Claimed
}

// settleFields is how many arguments an event is to lua/settle.lua.
const settleFields = 6

// Settle settles a batch of events.
func (s *Set) Settle(ctx context.Context, shard Shard, how Settling, batch []Settlement) (Settled, error) {
	if len(batch) == 0 {
		return Settled{}, nil
	}
	args := make([]any, 0, 7+settleFields*len(batch))
	args = append(args, how.Attempts, how.Base.Milliseconds(), how.Cap.Milliseconds(), how.Retention.Milliseconds(),
		digit(how.KeepBody), digit(how.Continues), how.Lease.Milliseconds())
	for _, b := range batch {
		args = append(args, b.ID, b.What, b.Lease, b.Number, b.Class, b.Error)
	}
	reply, err := s.eval(ctx, &s.settle, shard.outboxKeys(), args)
	if err != nil {
		return Settled{}, err
	}
	_, rows, err := timed(reply)
	if err != nil || len(rows) < 2+len(batch) || (len(rows)-2-len(batch))%4 != 0 {
		return Settled{}, malformed("settle", reply)
	}
	settled := Settled{
		Lease: word(rows[0]), Heads: number(rows[1]), Done: make([]string, len(batch)), Promoted: claimedIn(rows[2+len(batch):]),
	}
	for i := range batch {
		settled.Done[i] = word(rows[2+i])
	}
	return settled, nil
}

// Rearm puts parked events back into pending and returns how many it moved.
func (s *Set) Rearm(ctx context.Context, shard Shard, ids []string) (int, error) {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	reply, err := s.eval(ctx, &s.rearm, shard.outboxKeys(), args)
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
	Failures []Failure // newest first
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
		list[i].Failures = history(word(failures.Val()[i]))
	}
	return list, nil
}
