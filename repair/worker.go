package repair

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/sleep"
)

// errTurnLost ends a round that another process has taken over.
var errTurnLost = errors.New("repair: round: another process has taken it over")

// noteEvery is the interval at which a round stores its position.
const noteEvery = time.Second

// Run repairs every shard once per interval until ctx ends. Then it completes its step, releases its turn, and returns nil. If
// several processes run workers, one of them makes a round at a time. A Worker runs once at a time.
func (w *Worker) Run(ctx context.Context) error {
	if !w.running.CompareAndSwap(false, true) {
		return errors.New("repair: Run is already running")
	}
	defer w.running.Store(false)
	var keeping sync.WaitGroup
	defer keeping.Wait()
	keeping.Go(func() { w.processes.Keep(ctx, process.Repair, w.report) })
	keeping.Go(func() { w.history.Keep(ctx, nil) })
	for ctx.Err() == nil {
		sleep.For(ctx, w.turn(ctx))
	}
	return nil
}

// turn makes a round if this process gets the turn. It returns the time until the next attempt.
func (w *Worker) turn(ctx context.Context) time.Duration {
	turn, err := w.ask(ctx, shard.Turning{Hold: w.cfg.Lease, At: shard.NoPlace})
	if err != nil {
		if ctx.Err() == nil {
			w.stats.failed()
			w.cfg.Logger.Error("repair: turn failed", "error", err)
		}
		return min(w.cfg.Interval, stepTimeout)
	}
	if !turn.Mine {
		return min(turn.Wait, w.cfg.Interval) + rand.N(minLease) // waiting processes do not ask at the same time
	}
	w.mine.Store(true)
	defer w.mine.Store(false)
	end, wait := shard.Turning{Next: w.cfg.Interval}, w.cfg.Interval
	var complete bool
	if end.At, complete = w.round(ctx, turn.At); !complete {
		end.Next, wait = 0, min(w.cfg.Interval, stepTimeout)
	}
	if _, err := w.ask(context.WithoutCancel(ctx), end); err != nil {
		w.cfg.Logger.Warn("repair: releasing turn failed", "error", err)
	}
	return wait
}

// ask acquires, renews or releases the turn, which is stored in the first shard.
func (w *Worker) ask(ctx context.Context, turn shard.Turning) (shard.Turned, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	turn.Owner, turn.Interval = w.name, w.cfg.Interval
	return w.scripts.Turn(ctx, w.scripts.Shard(w.shards[0]), turn)
}

// round repairs every shard, starting at the position of the last round. It returns its own position, and whether the round is
// complete.
func (w *Worker) round(ctx context.Context, at int) (stands int, complete bool) {
	began, asked := time.Now(), time.Now()
	stands = shard.NoPlace
	step := func(ctx context.Context, slot int) (context.Context, context.CancelFunc, error) {
		stands = slot
		if time.Since(asked) > min(w.cfg.Lease/3, noteEvery) {
			turn, err := w.ask(ctx, shard.Turning{Hold: w.cfg.Lease, At: slot})
			if err != nil || !turn.Mine {
				return nil, nil, errors.Join(errTurnLost, err)
			}
			asked = time.Now()
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		bounded, cancel := context.WithTimeout(ctx, stepTimeout)
		return bounded, cancel, nil
	}
	log, left := newLog(w.cfg.Logger), []int(nil)
	note := func(f Finding, err error) bool {
		switch {
		case err == nil:
			log.note(f)
		case ctx.Err() == nil:
			w.stats.failed()
			w.cfg.Logger.Error("repair: step failed", "error", err)
		}
		return true
	}
	l := look{w, true, note, step, func(slots ...int) { left = append(left, slots...) }}
	complete = l.shards(ctx, around(w.shards, at))
	if again := left; complete && len(again) > 0 { // the server may have a new master meanwhile
		complete = l.shards(ctx, again)
	}
	log.flush()
	if complete {
		w.stats.round(began)
	}
	return stands, complete
}

// around returns all shards, starting at a slot, so that rounds that end early still reach every shard together. Without a
// position, it starts at a random shard.
func around(shards []int, at int) []int {
	first, _ := slices.BinarySearch(shards, at)
	if at == shard.NoPlace {
		first = rand.IntN(len(shards))
	}
	first %= len(shards)
	return slices.Concat(shards[first:], shards[:first])
}

// log logs one line per shard and kind, regardless of the number of findings.
type log struct {
	logger *slog.Logger
	slot   int
	order  []sort
	groups map[sort]*group
}

type sort struct {
	kind Kind
	key  string
}

type group struct {
	first Finding
	count int
}

func newLog(logger *slog.Logger) *log {
	return &log{logger: logger, groups: make(map[sort]*group)}
}

func (l *log) note(f Finding) {
	if f.Slot != l.slot {
		l.flush()
		l.slot = f.Slot
	}
	of := sort{f.Kind, f.Key}
	g := l.groups[of]
	if g == nil {
		g = &group{first: f}
		l.groups[of] = g
		l.order = append(l.order, of)
	}
	g.count++
}

func (l *log) flush() {
	for _, of := range l.order {
		g := l.groups[of]
		about := []any{"kind", string(of.kind), "findings", g.count, "first", g.first.String()}
		if g.first.Fixed {
			l.logger.Warn("repair: fixed", about...)
		} else {
			l.logger.Error("repair: operator needed", about...)
		}
	}
	l.order = nil
	clear(l.groups)
}
