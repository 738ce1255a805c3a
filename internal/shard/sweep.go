package shard

import (
	"context"
	"strconv"
	"time"

	"github.com/luatx/luatx/internal/eval"
)

// keySweep is the key of the progress of the sweep that the relays share.
const keySweep = "sweep" // hash: in the first shard: the time at which a relay got the last chunk of shards to sweep, and the next chunk

// Sweep requests the next chunk of a sweep with the given number of chunks. In each pause, only one of all callers gets
// a chunk. Sweep returns the chunk, or a negative number if it is too early, and the time until the next chunk. The
// given shard stores the state.
func (s *Scripts) Sweep(ctx context.Context, shard Shard, pause time.Duration, chunks int) (chunk int, wait time.Duration, err error) {
	_, rows, err := s.run(ctx, s.sweep, shard, 2, max(1, pause.Milliseconds()), chunks)
	if err != nil {
		return -1, 0, err
	}
	text, _ := rows[1].(string)
	ms, err := strconv.ParseInt(text, 10, 64)
	if chunk = eval.Number(rows[0]); err != nil || chunk >= chunks {
		return -1, 0, eval.Malformed("sweep", rows)
	}
	return chunk, time.Duration(ms) * time.Millisecond, nil
}
