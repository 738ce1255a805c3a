package relay

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/link"
)

// TestPausesBetweenSubscriptionsVaryAndDoubleUpToACap checks that a relay whose server cannot be reached tries to subscribe
// after pauses of half to one and a half times a time that doubles up to a cap.
func TestPausesBetweenSubscriptionsVaryAndDoubleUpToACap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Time // a subscription dials more than once, all at the same time
		client := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", DialerRetries: 1,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				if now := time.Now(); len(tries) == 0 || tries[len(tries)-1].Before(now) {
					tries = append(tries, now)
				}
				return nil, errRefusedConnection
			},
		})
		defer func() { _ = client.Close() }()
		r := &Relay{cfg: Config{Logger: slog.New(slog.DiscardHandler)}, inside: &link.Inside{Runner: eval.New(client, "", nil)}}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		r.subscribe(ctx, []string{"channel"}, func(int) {}, &listenOutage{})
		if len(tries) < 300 {
			t.Fatalf("%d subscriptions within two hours", len(tries))
		}
		least, most := time.Hour, time.Duration(0)
		for i := range len(tries) - 1 {
			pause, base := tries[i+1].Sub(tries[i]), min(listenPause<<min(i, 10), listenCap)
			if pause < base/2 || pause >= base*3/2 {
				t.Errorf("a pause of %v after subscription %d, want %v to %v", pause, i, base/2, base*3/2)
			}
			least, most = min(least, pause), max(most, pause)
			if base < listenCap {
				least, most = time.Hour, 0
			}
		}
		if least > listenCap*6/10 || most < listenCap*14/10 {
			t.Errorf("at the cap, pauses are %v to %v, want %v to %v", least, most, listenCap/2, listenCap*3/2)
		}
	})
}
