package shard

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/eval"
)

// Schedule moves a scheduled event that no relay has taken to another time, or cancels it where that is zero, and
// reports whether it did.
func (s *Scripts) Schedule(ctx context.Context, shard Shard, id string, at time.Time) (bool, error) {
	text := ""
	if !at.IsZero() {
		text = eval.Millis(at)
	}
	reply, err := s.runner.Eval(ctx, s.scheduled, shard.keysOf("scheduled"), []any{id, text})
	if err != nil {
		return false, err
	}
	_, rows, err := ownTimed(shard, reply)
	if err != nil {
		return false, err
	}
	return eval.Number(rows[0]) == 1, nil
}
