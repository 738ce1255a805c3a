package history

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/sleep"
)

// restAfterDenial is how long a process waits after the server denies a write. Each denial adds an entry to the
// server's ACL LOG.
const restAfterDenial = 10 * time.Minute

// Keep writes the counts of a counter every 10 seconds until ctx ends, and measures the outbox if no other process
// does. The counter may be nil, because a process that publishes nothing only measures. After an error, Keep continues.
// It logs one line for each outage.
func (h *History) Keep(ctx context.Context, counter *Counter) {
	if h.cfg.Off {
		return
	}
	failed := false
	for wait := time.Duration(0); sleep.For(ctx, wait); {
		err := h.keepOnce(ctx, counter)
		if err != nil && !failed && ctx.Err() == nil {
			h.cfg.Logger.Warn("luatx: the history cannot be written; its charts will have a gap", "error", err)
		}
		failed = err != nil
		if wait = h.Interval - rand.N(h.Interval/20); eval.Denied(err) {
			wait = restAfterDenial
		}
	}
}

// keepOnce writes once, and measures if it is this process's turn.
func (h *History) keepOnce(ctx context.Context, counter *Counter) error {
	turn, err := h.flush(ctx, counter, h.pause())
	if err != nil || !turn {
		return err
	}
	asked, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	gauges, err := h.look(asked)
	if err != nil {
		return err
	}
	written, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err = h.write(written, 0, gauges.pairs())
	return err
}

// pause returns the minimum time between two measurements. It is shorter than the time between two writes, so that a
// process that runs alone measures with each write.
func (h *History) pause() time.Duration {
	if len(h.cfg.Slots()) > manyShards {
		return max(manyInterval, h.Interval) * 9 / 10
	}
	return h.Interval * 9 / 10
}

// flush writes the counts of the counter. If that fails, the next flush writes them.
func (h *History) flush(ctx context.Context, counter *Counter, pause time.Duration) (turn bool, err error) {
	counts := counter.take()
	pairs := counts.pairs()
	if len(pairs) == 0 && pause == 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	turn, err = h.write(ctx, pause, pairs)
	if err != nil {
		counter.putBack(counts)
	}
	return turn, err
}

// End writes the counts of a counter since the last write. It takes a second at most, and reports no error.
func (h *History) End(ctx context.Context, counter *Counter) {
	if h.cfg.Off {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	_, _ = h.flush(ctx, counter, 0)
}
