package message

import (
	"math"
	"math/rand/v2"
	"time"
)

// Backoff is exponential backoff with a cap and full jitter. Each delay is chosen uniformly between zero and its ceiling, so that
// operations that failed together are not retried together.
type Backoff struct {
	// Base is the ceiling of the first delay. Defaults to 100 ms.
	Base time.Duration
	// Max caps the ceiling. Defaults to 30 s.
	Max time.Duration
}

// Delay returns how long to wait after the given attempt, counted from 1, has failed.
func (b Backoff) Delay(attempt int) time.Duration {
	return time.Duration(rand.Int64N(int64(min(b.Ceiling(attempt), math.MaxInt64-1)) + 1))
}

// Ceiling returns the longest delay after an attempt: Base doubled attempt-1 times, at most Max.
func (b Backoff) Ceiling(attempt int) time.Duration {
	base, limit := b.Base, b.Max
	if base <= 0 {
		base = 100 * time.Millisecond
	}
	if limit <= 0 {
		limit = 30 * time.Second
	}
	for ; attempt > 1 && base < limit; attempt-- {
		if base > limit/2 {
			return limit
		}
		base *= 2
	}
	return min(base, limit)
}
