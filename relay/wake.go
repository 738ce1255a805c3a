package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/sleep"
)

const (
	listenPause   = 100 * time.Millisecond
	listenCap     = 10 * time.Second
	listenRefused = time.Minute // after the server denied the subscription
)

// listen receives wake-ups for shards whose events were committed by processes that do not publish them. The sweep finds
// the events of wake-ups that listen misses.
func (r *Relay) listen(ctx context.Context) {
	ours := make(map[int]bool, len(r.shards))
	for _, slot := range r.shards {
		ours[slot] = true
	}
	heard := func(slot int) {
		if ours[slot] {
			r.schedule.add(slot, time.Now())
		}
	}
	var outage listenOutage
	var subscriptions sync.WaitGroup
	for _, channels := range r.inside.Runner.WakeSubscriptions(r.shards) {
		subscriptions.Go(func() { r.subscribe(ctx, channels, heard, &outage) })
	}
	subscriptions.Wait()
}

// subscribe subscribes to channels, and again whenever the subscription ends, until ctx ends.
func (r *Relay) subscribe(ctx context.Context, channels []string, heard func(int), outage *listenOutage) {
	for try := 0; ctx.Err() == nil; try++ {
		began := time.Now()
		err := r.inside.Runner.Listen(ctx, channels, heard)
		if time.Since(began) > listenCap {
			try = 0
		}
		if ctx.Err() != nil {
			return
		}
		pause, denied := min(listenPause<<min(try, 10), listenCap), eval.Denied(err) || errors.Is(err, eval.ErrNoChannels)
		if denied {
			pause = listenRefused
		}
		if (denied || try > 0) && outage.first() {
			r.cfg.Logger.Warn("relay: wake-up subscription failed", "error", err)
		}
		sleep.For(ctx, pause/2+rand.N(pause))
	}
}

// listenOutage limits the log to one line an hour about subscriptions that end.
type listenOutage struct {
	mu   sync.Mutex
	last time.Time
}

func (o *listenOutage) first() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.last.IsZero() && time.Since(o.last) < time.Hour {
		return false
	}
	o.last = time.Now()
	return true
}
