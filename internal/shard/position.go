package shard

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
)

// Position is the progress of the transactions of a shard in a partition of an ordered source.
type Position struct {
	Scope, Source, Partition string
	Offset                   string // the offset of the last commit; empty: nothing counts as committed
	Epoch                    string
	Generation               int64
	Broken                   bool // a rollback has failed
	Malformed                bool // the value is malformed, and only the names are set
}

// PositionField returns the field of a position in the hash of the positions.
func PositionField(scope, source, partition string) string {
	return scope + "\x00" + source + "\x00" + partition
}

// tokenSize is the size of the token at the beginning of a position; see internal/lua/_position.lua.
const tokenSize = 10

// positionOf parses a field of the positions.
func positionOf(field, value string) Position {
	p := Position{Malformed: true}
	parts := strings.SplitN(field, "\x00", 3)
	p.Source = field
	if len(parts) == 3 {
		p.Scope, p.Source, p.Partition = parts[0], parts[1], parts[2]
	}
	if len(value) < tokenSize {
		return p
	}
	rest := value[tokenSize:]
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	owner := rest[digits:]
	if owner == "" || owner[0] != ' ' && owner[0] != '!' {
		return p
	}
	generation, epoch, ok := strings.Cut(owner[1:], " ")
	n, err := strconv.ParseInt(generation, 10, 64)
	if !ok || err != nil {
		return p
	}
	p.Offset, p.Broken, p.Generation, p.Epoch, p.Malformed = rest[:digits], owner[0] == '!', n, epoch, false
	return p
}

// positionPage is the approximate number of positions that one command reads.
const positionPage = 1000

// HasPositions returns the slots whose shards have positions.
func (s *Scripts) HasPositions(ctx context.Context, slots []int) ([]int, error) {
	return s.having(ctx, slots, keyPositions)
}

// Positions reads positions of a shard. The first cursor is 0. Positions returns the next cursor, which is 0 at the
// end. It may return a position twice.
func (s *Scripts) Positions(ctx context.Context, shard Shard, cursor uint64) ([]Position, uint64, error) {
	pairs, next, err := s.client.HScan(ctx, shard.Key(keyPositions), cursor, "", positionPage).Result()
	if err != nil {
		return nil, 0, &SlotError{shard.Slot, err}
	}
	found := make([]Position, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		found = append(found, positionOf(pairs[i], pairs[i+1]))
	}
	return found, next, nil
}

// PositionIn reads a position in each of the slots. It omits slots that do not have the position.
func (s *Scripts) PositionIn(ctx context.Context, slots []int, field string) (map[int]Position, error) {
	replies, _ := askSlots(ctx, s, slots, func(pipe redis.Pipeliner, shard Shard) *redis.StringCmd {
		return pipe.HGet(ctx, shard.Key(keyPositions), field)
	})
	found := map[int]Position{}
	for i, reply := range replies {
		switch err := reply.Err(); {
		case err == nil:
			found[slots[i]] = positionOf(field, reply.Val())
		case err != redis.Nil: //nolint:errorlint // go-redis returns it as it is
			return nil, &SlotError{slots[i], err}
		}
	}
	return found, nil
}

// Generation returns the current generation of the owners of a position. If renew is true, it returns a new one. The
// generation is at least stored. The shard is the first one of the keyspace.
func (s *Scripts) Generation(ctx context.Context, shard Shard, field string, renew bool, stored int64) (int64, error) {
	flag := 0
	if renew {
		flag = 1
	}
	_, rows, err := s.run(ctx, s.generation, shard, 1, field, flag, stored)
	if err != nil {
		return 0, err
	}
	return int64(eval.Number(rows[0])), nil
}

// Reposition sets a position back to an offset, or removes it if the offset is empty. The name is for the audit.
// Reposition returns ActDone, ActUnknown if there is no position, or ActState if the offset has another length.
func (s *Scripts) Reposition(ctx context.Context, shard Shard, act Act, field, name string, generation int64, offset string) (byte, error) {
	letters, err := s.actOn(ctx, s.reposition, shard, act, []any{field, name, generation, offset})
	if err == nil && len(letters) != 1 {
		err = eval.Malformed(s.reposition.Name, letters)
	}
	if err != nil {
		return 0, err
	}
	return letters[0], nil
}
