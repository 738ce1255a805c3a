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
	// sweepAlone is how long a relay sweeps on its own before it tries to share the sweep again.
	sweepAlone = 10 * time.Second
)

// sweeper visits every shard once per interval, to find events that neither a commit of this process nor a wake-up
// announced. All running relays share one round, in which each chunk of shards goes to the first relay that requests it. If
// sharing fails, the relay sweeps on its own.
type sweeper struct {
	*Relay
	chunks int
	pause  time.Duration // between two chunks

	own   int       // the next chunk while the relay sweeps on its own
	alone time.Time // until when the relay sweeps on its own
	fails int       // chunks in a row that the relay could not visit
	quiet int       // successful visits since the last failure
}

func (r *Relay) sweep(ctx context.Context) {
	chunks := (len(r.shards) + sweepAtOnce - 1) / sweepAtOnce
	s := sweeper{Relay: r, chunks: chunks, pause: r.cfg.SweepInterval / time.Duration(chunks), own: rand.IntN(chunks), quiet: chunks}
	for ctx.Err() == nil {
		sleep.For(ctx, s.turn(ctx))
	}
}

// turn visits a chunk, if the relay gets one, and returns how long to wait before it requests the next.
func (s *sweeper) turn(ctx context.Context) time.Duration {
	if time.Now().Before(s.alone) {
		return s.byItself(ctx)
	}
	asked, cancel := context.WithTimeout(ctx, sweepTimeout)
	chunk, wait, err := s.scripts.Sweep(asked, s.scripts.Shard(s.shards[0]), s.pause, s.chunks)
	cancel()
	wait += rand.N(min(s.pause, time.Second)/8 + 1) // relays that wait for the same chunk do not request it together
	switch {
	case err != nil:
		if ctx.Err() == nil {
			s.cfg.Logger.Warn("relay: sweep not shared", "error", err)
		}
		s.alone = time.Now().Add(min(sweepAlone, 10*s.cfg.SweepInterval))
		return s.byItself(ctx)
	case chunk < 0:
	case s.visit(ctx, chunk):
		s.fails = 0
	default: // give the next chunks to other relays, which may reach more shards
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

// visit schedules the shards of a chunk that have waiting events. It reports whether all shards replied.
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
	if s.quiet >= s.chunks && ctx.Err() == nil { // once per outage, even if other nodes reply
		s.cfg.Logger.Warn("relay: sweep failed", "error", err)
	}
	s.quiet = 0
	return false
}
