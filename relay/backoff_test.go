package relay_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
)

// TestBackoffDoublesUpToItsCap fails an event repeatedly, with the jitter at its minimum, its maximum and in the middle.
func TestBackoffDoublesUpToItsCap(t *testing.T) {
	t.Parallel()
	how := shard.Settling{Attempts: 1000, Base: 100 * time.Millisecond, Cap: 1500 * time.Millisecond, Retention: time.Hour}
	ceilings := []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, how.Cap}
	for _, jitter := range []float64{0, 0.5, math.Nextafter(1, 0)} {
		t.Run(fmt.Sprint(jitter), func(t *testing.T) {
			t.Parallel()
			server, client := redistest.Mini(t)
			now := time.Now().Truncate(time.Millisecond)
			server.SetTime(now)
			tr := newTransactor(t, client)
			commit(t, tr, "a", luatx.Event{ID: "e", Body: body("e")})
			home := link.Of(tr).Scripts.Shard(slotWith(t, tr))
			for attempt := 1; attempt <= 40; attempt++ {
				now = now.Add(how.Cap)
				server.SetTime(now)
				claim, err := link.Of(tr).Scripts.Claim(t.Context(), home, shard.Claiming{Limit: 10, Lease: time.Hour, Attempts: how.Attempts})
				if err != nil || len(claim.Events) != 1 {
					t.Fatalf("attempt %d: claimed %+v, %v", attempt, claim, err)
				}
				failed := shard.Settlement{ID: "e", What: "failed", Lease: claim.Lease, Number: jitter}
				_, err = link.Of(tr).Scripts.Settle(t.Context(), home, how, []shard.Settlement{failed})
				redistest.Must(t, err)
				ceiling := ceilings[min(attempt, len(ceilings))-1]
				want := time.Duration(float64(ceiling.Milliseconds())*jitter) * time.Millisecond
				due := time.UnixMilli(int64(client.ZScore(t.Context(), home.Key("pending"), "e").Val()))
				if got := due.Sub(now); got != want {
					t.Errorf("failure %d: due after %v, want %v", attempt, got, want)
				}
			}
		})
	}
}
