package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/cmd/luatx/internal/shop"
	"github.com/luatx/luatx/outbox"
)

const (
	lookEvery = 10 * time.Millisecond
	// quietLooks in a row, quietPause apart, make a run quiet.
	quietLooks = 3
	quietPause = 100 * time.Millisecond
	// cleanTimeout bounds what is done after the end of a run.
	cleanTimeout = 30 * time.Second
)

// job is the orders in one mode.
type job struct {
	options  shop.Options
	mode     shop.Mode
	orders   []shop.Order
	expected shop.Expected
	server   server
	client   redis.UniversalClient
	keys     layout
	progress *shop.Progress
}

// outcome is a result, and what the demo tells beside it.
type outcome struct {
	shop.Result
	dropped int64 // replies
	parked  int64 // events
	log     string
}

// run handles the orders until all is quiet, and reads the books back. The keys stay only where they were asked for.
func (j job) run(ctx context.Context) (out outcome, err error) {
	defer func() {
		if j.options.Keep {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		err = errors.Join(err, clean(ctx, j.client, j.keys.namespace))
	}()
	transactor, err := luatx.New(j.client, j.keys.config())
	if err != nil {
		return out, err
	}
	watched := observer{client: j.client, keys: j.keys, mode: j.mode, store: outbox.NewStore(transactor)}

	out, took, err := j.underFire(ctx, watched)
	if err != nil {
		return out, err
	}
	written, err := watched.read(ctx)
	if err != nil {
		return out, err
	}
	counts, err := watched.store.Counts(ctx)
	if err != nil {
		return out, err
	}
	out.parked = counts.Parked
	out.Messages = len(j.orders)
	j.expected.Compare(&out.Result, written)
	out.Pace(took.whole, took.each)
	return out, nil
}

// durations are how long the run took, and each of its messages.
type durations struct {
	whole time.Duration
	each  []time.Duration
}

// underFire feeds the workers, kills them, and returns when everything is quiet and nothing of them runs any more.
func (j job) underFire(ctx context.Context, watched observer) (out outcome, took durations, err error) {
	faults, err := startFaults(ctx, j.server, j.client, j.options.Seed)
	if err != nil {
		return out, took, err
	}
	defer func() { err = errors.Join(err, faults.close()) }()
	log, err := os.CreateTemp("", "luatx-demo-*.log")
	if err != nil {
		return out, took, err
	}
	defer func() {
		_ = log.Close() // the workers wrote it
		if err == nil {
			err = os.Remove(log.Name())
		} else {
			out.log = log.Name()
		}
	}()

	behind := j.server
	behind.Routes = faults.routes
	crew, err := startCrew(j.options.Workers, workerConfig{
		Server: behind, Namespace: j.keys.namespace, Mode: j.mode, Work: j.options.Work,
	}, log)
	if err != nil {
		return out, took, err
	}
	start := time.Now()
	kills, err := j.watch(ctx, watched, crew)
	took.whole = time.Since(start) - quietLooks*quietPause
	grace := endTimeout
	if err != nil {
		grace = 0
	}
	err = errors.Join(err, crew.stop(grace))
	out.Kills, out.dropped, took.each = kills, faults.dropped.Load(), crew.times()
	return out, took, err
}

// watch feeds the orders and kills workers as planned until everything is quiet.
func (j job) watch(ctx context.Context, watched observer, crew *crew) (kills int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, j.deadline(), errors.New("orders or events are still on their way long after they should have arrived"))
	defer cancel()
	fed := newFeeder(j.client, j.keys, j.orders, j.options.Rate)
	feeding := make(chan error, 1)
	go func() { feeding <- fed.run(ctx) }()
	defer func() {
		cancel()
		if feeding != nil {
			err = errors.Join(err, ignoreCancelled(<-feeding))
		}
	}()
	defer j.progress.Finish()

	plan := shop.Kills(j.options.Seed, len(j.orders), j.options.KillEvery, j.options.Workers)
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	quiet := 0
	for {
		select {
		case <-ctx.Done():
			return kills, context.Cause(ctx)
		case err := <-crew.failed:
			return kills, err
		case err := <-feeding:
			feeding = nil
			if err != nil {
				return kills, err
			}
			continue
		case <-ticker.C:
		}
		settled, err := watched.settled(ctx, fed)
		if err != nil {
			return kills, err
		}
		j.progress.Set(settled, kills)
		if kills < len(plan) && settled >= plan[kills].After {
			if err := crew.kill(ctx, plan[kills].Worker); err != nil {
				return kills, err
			}
			kills++
			continue
		}
		if settled < len(j.orders) {
			continue
		}
		still, err := watched.quiet(ctx)
		if err != nil {
			return kills, err
		}
		if quiet++; !still {
			quiet = 0
		}
		if quiet > quietLooks {
			return kills, nil
		}
		ticker.Reset(quietPause)
	}
}

// deadline is far beyond what a run takes on a slow machine.
func (j job) deadline() time.Duration {
	steps := time.Duration(len(j.orders) + j.expected.Events)
	d := 2*time.Minute + steps*(j.options.Work+25*time.Millisecond)
	if j.options.Rate > 0 {
		d += time.Duration(float64(len(j.orders)) / float64(j.options.Rate) * float64(time.Second))
	}
	return d
}

// ignoreCancelled drops the error of what was told to stop.
func ignoreCancelled(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// describe says in one line what the workers went through.
func (o outcome) describe(mode shop.Mode) string {
	text := fmt.Sprintf("%s mode: %d workers killed, %d replies lost on the way", mode, o.Kills, o.dropped)
	if o.parked > 0 {
		text += fmt.Sprintf(", %d events parked", o.parked)
	}
	return text
}
