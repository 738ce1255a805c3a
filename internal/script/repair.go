package script

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// RepairAt is a place in a look at a shard. Its zero value is the beginning.
type RepairAt struct {
	Part   int
	Cursor string
	Sums   []any // of what was passed
}

// RepairFinding is one disagreement within a shard, as lua/repair.lua names it.
type RepairFinding struct {
	Kind, Key, ID, Detail string
	Fixed                 bool
}

// RepairForeign is the kind of the one finding about a shard of another identity, which Detail holds.
const RepairForeign = "foreign"

// repairKeys are what a look at a shard takes in, in the script's order.
func (s Shard) repairKeys() []string {
	return s.keys(keyVoid, keyInboxA, keyInboxB, keyResults, keyResultsB, keyEntries, keyPending, keyParked, keySent,
		keyAttempts, keyErrors, keyLeases, keyBroken, keySeq, keyRepair, keyDue, keyDecided, keyHeaders, keyLanes,
		keyRoutes, keyCounts, keyParkedBy, keyAudit, keySweep)
}

// Repair makes one step of a look at a shard, and fixes what it finds where that is asked for. It returns where the
// next step begins; done: there is none.
func (s *Set) Repair(ctx context.Context, shard Shard, fix bool, at RepairAt, limit int) (found []RepairFinding, next RepairAt, done bool, err error) {
	mode := ""
	if fix {
		mode = "fix"
	}
	if at.Cursor == "" {
		at.Cursor = "0"
	}
	reply, err := s.eval(ctx, &s.repair, shard.repairKeys(), append([]any{mode, at.Part, at.Cursor, limit}, at.Sums...))
	if err != nil {
		return nil, at, false, err
	}
	_, rows, err := timed(reply)
	if err != nil {
		return nil, at, false, err
	}
	if rows[0] == string(Identity) {
		return []RepairFinding{{Kind: RepairForeign, Key: keyInboxA, Detail: fmt.Sprint(rows[1])}}, at, true, nil
	}
	if len(rows)%5 != 3 {
		return nil, at, false, malformed("repair", reply)
	}
	next.Part = number(rows[0])
	next.Cursor, _ = rows[1].(string)
	next.Sums, _ = rows[2].([]any)
	for row := rows[3:]; len(row) > 0; row = row[5:] {
		f := RepairFinding{Fixed: number(row[4]) == 1}
		for i, field := range []*string{&f.Kind, &f.Key, &f.ID, &f.Detail} {
			*field, _ = row[i].(string)
		}
		found = append(found, f)
	}
	return found, next, next.Part < 0, nil
}

// Turn takes, or keeps, the turn to repair for as long as hold; not mine: it is another's, or not yet time, for wait.
// With hold 0 it ends, and the next one comes after next.
func (s *Set) Turn(ctx context.Context, shard Shard, owner string, hold, interval, next time.Duration) (mine bool, wait time.Duration, err error) {
	args := []any{owner, hold.Milliseconds(), interval.Milliseconds(), next.Milliseconds()}
	reply, err := s.eval(ctx, &s.turn, shard.keys(keyVoid, keyRepair), args)
	if err != nil {
		return false, 0, err
	}
	_, rows, err := timed(reply)
	if err != nil {
		return false, 0, err
	}
	text, _ := rows[len(rows)-1].(string)
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || len(rows) != 2 {
		return false, 0, malformed("turn", reply)
	}
	return number(rows[0]) == 1, time.Duration(ms) * time.Millisecond, nil
}

// Existing returns the slots, of those given, whose shards hold anything. It only reads; slots that it could not ask
// for are left out, and the error is that of one of them.
func (s *Set) Existing(ctx context.Context, slots []int) ([]int, error) {
	pipe := s.client.Pipeline()
	replies := make([]*redis.IntCmd, len(slots))
	for i, n := range slots {
		replies[i] = pipe.Exists(ctx, s.Shard(n).repairKeys()...)
	}
	_, err := pipe.Exec(ctx)
	var existing []int
	for i, reply := range replies {
		if reply.Err() == nil && reply.Val() > 0 {
			existing = append(existing, slots[i])
		}
	}
	return existing, err
}
