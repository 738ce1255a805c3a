package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/luatx/luatx/cmd/luatx/internal/shop"
)

const (
	lookEvery = 10 * time.Millisecond
	// quietLooks is the number of further checks, quietPause apart, that must find nothing new before a run counts as quiet.
	quietLooks = 3
	quietPause = 100 * time.Millisecond
)

var errTooLong = errors.New("orders or events did not arrive in time")

// shift runs a crew: it feeds orders, kills workers by plan, and waits until everything is quiet.
type shift struct {
	job   job
	seen  observer
	crew  *crew
	fed   *feeder
	plan  []shop.Kill
	most  time.Duration // maximum duration
	kills int           // number of kills so far
	quiet int           // number of quiet checks in a row
}

func newShift(j job, seen observer, crew *crew) *shift {
	return &shift{
		job: j, seen: seen, crew: crew,
		fed:  newFeeder(j.client, j.keys, j.orders, j.options.Rate),
		plan: shop.Kills(j.options.Seed, len(j.orders), j.options.KillEvery, j.options.Workers),
		most: j.deadline(),
	}
}

// run returns the time until everything was quiet.
func (s *shift) run(ctx context.Context) (took time.Duration, err error) {
	defer s.job.progress.Finish()
	ctx, cancel := context.WithTimeoutCause(ctx, s.most, errTooLong)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	var feeding sync.WaitGroup
	feeding.Go(func() {
		if err := s.fed.run(ctx); err != nil {
			stop(err)
		}
	})
	start := time.Now()
	err = s.watch(ctx)
	took = time.Since(start) - quietLooks*quietPause
	if ctx.Err() != nil {
		err = context.Cause(ctx) // the first failure
	}
	stop(nil)
	feeding.Wait()
	return took, err
}

// watch checks repeatedly until everything is quiet or something fails.
func (s *shift) watch(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for s.quiet <= quietLooks {
		s.allow()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-s.crew.failed:
			return err
		case <-ticker.C:
			if err := s.look(ctx); err != nil {
				return err
			}
			if s.quiet == 1 {
				ticker.Reset(quietPause)
			}
		}
	}
	return nil
}

// allow raises the feeder's limit. Orders wait for the kills that are planned before them, and for the next victim to be
// busy. Kills then hit both modes at the same shares of their progress, with as many orders in flight as the workers can
// hold.
func (s *shift) allow() {
	limit := len(s.job.orders)
	if s.kills < len(s.plan) {
		if !s.crew.isReady(s.plan[s.kills].Worker) {
			return
		}
		limit = s.plan[s.kills].After + s.job.options.Workers*partitions*inFlight
	}
	s.fed.limit.Store(int64(limit))
}

// look kills a worker if that is due, or checks whether everything is quiet.
func (s *shift) look(ctx context.Context) error {
	settled, err := s.seen.settled(ctx, s.fed)
	if err != nil {
		return err
	}
	s.job.progress.Set(settled, s.kills)
	if s.kills < len(s.plan) && settled >= s.plan[s.kills].After {
		err := s.crew.kill(ctx, s.plan[s.kills].Worker)
		s.kills++
		return err
	}
	if settled < len(s.job.orders) {
		return nil
	}
	quiet, err := s.seen.quiet(ctx)
	s.quiet++
	if !quiet {
		s.quiet = 0
	}
	return err
}

// deadline returns a time that far exceeds the duration of a run on a slow machine.
func (j job) deadline() time.Duration {
	d := 2*time.Minute + time.Duration(len(j.orders)+j.expected.Events)*(j.options.Work+25*time.Millisecond)
	if j.options.Rate > 0 {
		d += time.Duration(float64(len(j.orders)) / float64(j.options.Rate) * float64(time.Second))
	}
	return d
}
