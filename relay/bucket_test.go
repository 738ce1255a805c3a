package relay

import (
	"testing"
	"time"
)

func TestBucketRefillsAtItsRateUpToItsBurst(t *testing.T) {
	t.Parallel()
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, c := range []struct {
		rate  float64
		taken int           // of three tokens
		after time.Duration // time since then
		has   int
		wait  time.Duration
		full  bool
	}{
		{10, 0, 0, 3, 0, true},
		{10, 0, time.Hour, 3, 0, true},
		{10, 1, 0, 2, 0, false},
		{10, 1, ms(99), 2, 0, false},
		{10, 1, ms(100), 3, 0, true},
		{10, 3, 0, 0, ms(100), false},
		{10, 3, ms(50), 0, ms(50), false},
		{10, 3, ms(100), 1, 0, false},
		{10, 3, ms(250), 2, 0, false},
		{10, 3, ms(300), 3, 0, true},
		{1, 3, 0, 0, time.Second, false},
		{0.5, 3, ms(500), 0, ms(1500), false},
		{0, 3, 0, 3, 0, true},
	} {
		after := func() (*bucket, time.Time) {
			b := newBucket(c.rate, 3)
			for range c.taken {
				if !b.takeToken(b.at) {
					t.Errorf("%+v: a token is missing", c)
				}
			}
			return &b, b.at.Add(c.after)
		}
		b, now := after()
		if got := b.has(now); got != c.has {
			t.Errorf("%+v: it has %d", c, got)
		}
		b, now = after()
		if got := b.wait(now).Round(time.Microsecond); got != c.wait {
			t.Errorf("%+v: the wait is %v", c, got)
		}
		b, now = after()
		if got := b.full(now); got != c.full {
			t.Errorf("%+v: full is %t", c, got)
		}
		b, now = after()
		if got := b.takeToken(now); got != (c.has > 0) {
			t.Errorf("%+v: it gives a token: %t", c, got)
		}
	}
}

// TestBucketRoundsAlmostATokenUp checks that there is a token after the time that wait returns, and that rounding leaves no
// debt.
func TestBucketRoundsAlmostATokenUp(t *testing.T) {
	t.Parallel()
	b := newBucket(1, 1)
	b.tokens = almost
	if wait := b.wait(b.at); wait != 0 {
		t.Errorf("a wait of %v", wait)
	}
	if !b.takeToken(b.at) || b.tokens != 0 {
		t.Errorf("%v tokens are left", b.tokens)
	}
}
