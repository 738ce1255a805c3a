package sleep_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/sleep"
)

func TestForWaitsUnlessTheContextEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		timeout, d, want time.Duration
		waited           bool
	}{
		"for all of it":      {time.Hour, time.Minute, time.Minute, true},
		"until the context":  {time.Second, time.Minute, time.Second, false},
		"not at all":         {0, time.Minute, 0, false},
		"for no time at all": {time.Hour, 0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				began := time.Now()
				if waited := sleep.For(ctx, c.d); waited != c.waited || time.Since(began) != c.want {
					t.Errorf("returned %t after %v, want %t after %v", waited, time.Since(began), c.waited, c.want)
				}
			})
		})
	}
}
