package relay

import (
	"testing"
	"time"
)

func TestReserveAndGraceHaveTheirBounds(t *testing.T) {
	t.Parallel()
	for drain, want := range map[time.Duration]time.Duration{400 * time.Millisecond: 100 * time.Millisecond, 4 * time.Second: time.Second, time.Minute: time.Second} {
		if got := reserveOf(drain); got != want {
			t.Errorf("a DrainTimeout of %v reserves %v, want %v", drain, got, want)
		}
	}
	for _, c := range []struct{ call, reserve, want time.Duration }{
		{time.Minute, time.Minute, 500 * time.Millisecond},
		{time.Second, time.Minute, 250 * time.Millisecond},
		{time.Minute, 100 * time.Millisecond, 50 * time.Millisecond},
		{time.Minute, 10 * time.Millisecond, 20 * time.Millisecond},
	} {
		if got := graceOf(c.call, c.reserve); got != c.want {
			t.Errorf("a call of %v with a reserve of %v has a grace of %v, want %v", c.call, c.reserve, got, c.want)
		}
	}
}
