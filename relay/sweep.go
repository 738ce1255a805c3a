package relay

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/luatx/luatx/internal/sleep"
)

const (
	sweepAtOnce  = 256
	sweepTimeout = 3 * time.Second
	// sweepAlone is how long a relay sweeps by itself before it asks for its turn again.
	sweepAlone = 10 * time.Second
)

// sweeper visits every shard once an interval, for events that no commit of this process and no wake-up speaks of.
// The relays that run share one such round: each chunk of it is handed out to the relay that asks first. Where that
// cannot be had, the relay goes round by itself.
type sweeper struct {
	*Relay
	chunks int
	pause  time.Duration // between two chunks

	own   int       // the next chunk of a relay that is by itself
	alone time.Time // until when it is
	fails int       // turns in a row that it could not make use of
	quiet int       // looks since one failed
}

func (r *Relay) sweep(ctx context.Context) {
	chunks := (len(r.shards) + sweepAtOnce - 1) / sweepAtOnce
	s := sweeper{Relay: r, chunks: chunks, pause: r.cfg.SweepInterval / time.Duration(chunks), own: rand.IntN(chunks), quiet: chunks}
	for ctx.Err() == nil {
		sleep.For(ctx, s.turn(ctx))
	}
}

// turn looks at a chunk, where it is given one, and returns how long to wait until it may be given the next.
func (s *sweeper) turn(ctx context.Context) time.Duration {
	if time.Now().Before(s.alone) {
		return s.byItself(ctx)
	}
	asked, cancel := context.WithTimeout(ctx, sweepTimeout)
	chunk, wait, err := s.scripts.Sweep(asked, s.scripts.Shard(s.shards[0]), s.pause, s.chunks)
	cancel()
	wait += rand.N(min(s.pause, time.Second)/8 + 1) // those who wait for the same do not ask together
	switch {
	case err != nil:
		if ctx.Err() == nil {
			s.cfg.Logger.Warn("relay: the sweep is not shared for now: this relay looks at every shard by itself", "error", err)
		}
		s.alone = time.Now().Add(min(sweepAlone, 10*s.cfg.SweepInterval))
		return s.byItself(ctx)
	case chunk < 0:
	case s.visit(ctx, chunk):
		s.fails = 0
	default: // let others, who may see more, have the next turns
		s.fails++
		wait += rand.N(min(s.pause<<min(s.fails, 10), s.cfg.PauseCap) + 1)
	}
	return wait
}

func (s *sweeper) byItself(ctx context.Context) time.Duration {
	s.visit(ctx, s.own)
	s.own = (s.own + 1) % s.chunks
	return s.pause
}

// visit asks the shards of a chunk whether events wait there, and reports whether all of them answered.
func (s *sweeper) visit(ctx context.Context, chunk int) bool {
	bounded, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	shards := s.shards[chunk*sweepAtOnce : min((chunk+1)*sweepAtOnce, len(s.shards))]
	waiting, err := s.scripts.Waiting(bounded, shards)
	for _, slot := range waiting {
		s.schedule.add(slot, time.Now())
	}
	if err == nil {
		s.quiet++
		return true
	}
	if s.quiet >= s.chunks && ctx.Err() == nil { // a line an outage, though other nodes answer
		s.cfg.Logger.Warn("relay: sweep failed: not every shard can be looked at", "error", err)
	}
	s.quiet = 0
	return false
}
