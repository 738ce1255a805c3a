package relay

import "time"

// bucket is a token bucket with a rate in tokens per second. It is full at first. With a rate of 0 there is always a token.
type bucket struct {
	rate, burst float64
	tokens      float64
	at          time.Time // when tokens was computed
}

func newBucket(rate, burst float64) bucket {
	return bucket{rate: rate, burst: burst, tokens: burst, at: time.Now()}
}

// almost is the part of a token that counts as a whole one, because the tokens gained by waiting are not exact.
const almost = 1 - 1e-6

func (b *bucket) refill(now time.Time) {
	b.tokens, b.at = min(b.burst, b.tokens+now.Sub(b.at).Seconds()*b.rate), now
}

// takeToken removes a token and reports whether there was one.
func (b *bucket) takeToken(now time.Time) bool {
	if b.rate == 0 {
		return true
	}
	b.refill(now)
	if b.tokens < almost {
		return false
	}
	b.tokens = max(0, b.tokens-1)
	return true
}

// wait returns how long it takes until there is a token.
func (b *bucket) wait(now time.Time) time.Duration {
	b.refill(now)
	if b.rate == 0 || b.tokens >= almost {
		return 0
	}
	return time.Duration((1 - b.tokens) / b.rate * float64(time.Second))
}

// has returns the number of tokens.
func (b *bucket) has(now time.Time) int {
	b.refill(now)
	return int(b.tokens + 1 - almost)
}

func (b *bucket) full(now time.Time) bool {
	b.refill(now)
	return b.rate == 0 || b.tokens >= b.burst
}
