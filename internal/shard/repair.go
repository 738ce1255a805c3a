package shard

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
)

// RepairAt is the position of a check within a shard. Its zero value is the beginning.
type RepairAt struct {
	Part   int
	Cursor string
	Sums   []any // sums over the part that was checked
}

// RepairFinding is an inconsistency within a shard. Its Kind is the name that internal/lua/repair.lua uses.
type RepairFinding struct {
	Kind, Key, ID, Detail string
	Fixed                 bool
}

// RepairForeign is the kind of the only finding in a shard of another identity. Detail contains that identity.
const RepairForeign = "foreign"

// Repair makes one step of the check of a shard. If fix is true, it also repairs the inconsistencies that it finds. It
// returns the position at which the next step begins. Done reports that there is no next step.
func (s *Scripts) Repair(ctx context.Context, shard Shard, fix bool, at RepairAt, limit int) (found []RepairFinding, next RepairAt, done bool, err error) {
	mode := ""
	if fix {
		mode = "fix"
	}
	if at.Cursor == "" {
		at.Cursor = "0"
	}
	reply, err := s.runner.Eval(ctx, s.repair, shard.keysOf("repair"), append([]any{mode, at.Part, at.Cursor, limit}, at.Sums...))
	if err != nil {
		return nil, at, false, err
	}
	_, rows, err := eval.Timed(reply)
	if err != nil {
		return nil, at, false, err
	}
	if rows[0] == identity {
		return []RepairFinding{{Kind: RepairForeign, Key: keyInboxA, Detail: fmt.Sprint(rows[1])}}, at, true, nil
	}
	if len(rows)%5 != 3 {
		return nil, at, false, eval.Malformed("repair", reply)
	}
	next.Part = eval.Number(rows[0])
	next.Cursor, _ = rows[1].(string)
	next.Sums, _ = rows[2].([]any)
	for row := rows[3:]; len(row) > 0; row = row[5:] {
		f := RepairFinding{Fixed: eval.Number(row[4]) == 1}
		for i, field := range []*string{&f.Kind, &f.Key, &f.ID, &f.Detail} {
			*field, _ = row[i].(string)
		}
		found = append(found, f)
	}
	return found, next, next.Part < 0, nil
}

// NoPlace is the position of a round that has not begun.
const NoPlace = -1

// Turning is a request for the turn to repair.
type Turning struct {
	Owner    string        // the process that sends the request
	Hold     time.Duration // how long the owner keeps the turn without another request; 0 ends the turn
	Interval time.Duration // between two rounds
	Next     time.Duration // until the next turn, if the request ends this one
	At       int           // the slot that the owner's round has reached, or NoPlace
}

// Turned is the reply to Turning.
type Turned struct {
	Mine bool
	Wait time.Duration // until the next request, if another process has the turn or the turn is not due
	At   int           // the slot that the last round had reached, or NoPlace
}

// Turn takes, extends or ends the turn to repair.
func (s *Scripts) Turn(ctx context.Context, shard Shard, ask Turning) (Turned, error) {
	at := ""
	if ask.At != NoPlace {
		at = strconv.Itoa(ask.At)
	}
	args := []any{ask.Owner, ask.Hold.Milliseconds(), ask.Interval.Milliseconds(), ask.Next.Milliseconds(), at}
	_, rows, err := s.run(ctx, s.turn, shard, 3, args...)
	if err != nil {
		return Turned{}, err
	}
	turned := Turned{Mine: eval.Number(rows[0]) == 1, At: NoPlace}
	wait, _ := rows[1].(string)
	ms, err := strconv.ParseInt(wait, 10, 64)
	if err != nil {
		return Turned{}, eval.Malformed("turn", rows)
	}
	turned.Wait = time.Duration(ms) * time.Millisecond
	place, _ := rows[2].(string)
	if n, err := strconv.Atoi(place); err == nil { // a value that a person has written may be invalid
		turned.At = n
	}
	return turned, nil
}

// Existing returns the given slots whose shards contain anything. It also returns the slots that it could not query,
// with the error of one of them. It only reads.
func (s *Scripts) Existing(ctx context.Context, slots []int) (existing, unasked []int, err error) {
	replies, err := askSlots(ctx, s, slots, func(pipe redis.Pipeliner, shard Shard) *redis.IntCmd {
		return pipe.Exists(ctx, shard.keysOf("repair")...)
	})
	for i, reply := range replies {
		switch {
		case reply.Err() != nil:
			unasked = append(unasked, slots[i])
		case reply.Val() > 0:
			existing = append(existing, slots[i])
		}
	}
	return existing, unasked, err
}
