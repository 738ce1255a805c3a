package shard

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/eval"
)

// Held is an event that somebody is about to publish, and his lease; empty: the committer's own.
type Held struct{ ID, Lease string }

// Extend moves the leases of events, waits behind that as far as d asks, and tells which of them are still held and
// whether everything that their shard had taken is where it is to be.
func (s *Scripts) Extend(ctx context.Context, shard Shard, lease time.Duration, events []Held, d eval.Durability) (held []bool, replicated bool, err error) {
	args := make([]any, 0, 1+2*len(events))
	args = append(args, lease.Milliseconds())
	for _, e := range events {
		args = append(args, e.ID, e.Lease)
	}
	reply, replicated, err := s.runner.EvalDurably(ctx, d, s.extend, shard.keysOf("extend"), args)
	if err != nil {
		return nil, false, err
	}
	_, rows, err := eval.Timed(reply)
	if err != nil || len(rows) != len(events) {
		return nil, false, eval.Malformed("extend", reply)
	}
	held = make([]bool, len(rows))
	for i, row := range rows {
		held[i] = eval.Number(row) == 1
	}
	return held, replicated, nil
}
