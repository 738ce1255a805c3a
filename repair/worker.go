package repair

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"
)

// errTurnLost ends a round: another process has taken it over.
var errTurnLost = errors.New("repair: another process has taken the round over")

// Run repairs every shard once an interval until ctx ends; then it ends its step, gives back its turn, and returns nil.
// Of any number of processes one does so at a time. It runs once at a time.
func (w *Worker) Run(ctx context.Context) error {
	if !w.running.CompareAndSwap(false, true) {
		return errors.New("repair: Run is running already")
	}
	defer w.running.Store(false)
	for ctx.Err() == nil {
		wait := w.turn(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return nil
}

// turn makes a round where it is this process' turn, and returns how long to wait until it may be the next time.
func (w *Worker) turn(ctx context.Context) time.Duration {
	mine, wait, err := w.ask(ctx, w.cfg.Lease, 0)
	if err != nil {
		if ctx.Err() == nil {
			w.stats.failed()
			w.cfg.Logger.Error("repair: cannot learn whose turn it is", "error", err)
		}
		return min(w.cfg.Interval, stepTimeout)
	}
	if !mine {
		return min(wait, w.cfg.Interval) + rand.N(minLease) // those who wait for the same do not ask together
	}
	next := w.cfg.Interval
	if !w.round(ctx) {
		next = 0
	}
	if _, _, err := w.ask(context.WithoutCancel(ctx), 0, next); err != nil {
		w.cfg.Logger.Warn("repair: could not end the round; the next one begins when its lease has run out", "error", err)
	}
	return w.cfg.Interval
}

// ask takes, keeps or (with hold 0) ends the turn. It lies in the first shard.
func (w *Worker) ask(ctx context.Context, hold, next time.Duration) (bool, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return w.scripts.Turn(ctx, w.scripts.Shard(w.shards[0]), w.name, hold, w.cfg.Interval, next)
}

// round repairs every shard, and reports whether it came to its end.
func (w *Worker) round(ctx context.Context) bool {
	began, asked := time.Now(), time.Now()
	step := func(ctx context.Context) (context.Context, context.CancelFunc, error) {
		if time.Since(asked) > w.cfg.Lease/3 {
			mine, _, err := w.ask(ctx, w.cfg.Lease, 0)
			if err != nil || !mine {
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
	log := newLog(w.cfg.Logger)
	ended := look{w, true, func(f Finding, err error) bool {
		switch {
		case err == nil:
			log.note(f)
		case ctx.Err() == nil:
			w.stats.failed()
			w.cfg.Logger.Error("repair: a step failed", "error", err)
		}
		return true
	}, step}.shards(ctx, anywhere(w.shards))
	log.flush()
	if ended {
		w.stats.round(began)
	}
	return ended
}

// anywhere returns the shards from one of them on, and around: rounds that never come to their end still come to all.
func anywhere(shards []int) []int {
	first := rand.IntN(len(shards))
	return slices.Concat(shards[first:], shards[:first])
}

// log says what was found in one line a shard and sort, however much it is.
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
			l.logger.Error("repair: needs a person", about...)
		}
	}
	l.order = nil
	clear(l.groups)
}
