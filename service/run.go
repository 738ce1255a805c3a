package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// StopError is the error of Run if pieces of the service were still running when their part of Config.ShutdownTimeout was
// over. Go cannot end a goroutine from outside, so they may run on: end the process.
type StopError struct {
	// Pieces are their names: input, timers, repair, relay, admin or http.
	Pieces []string
}

// Error names the pieces.
func (e *StopError) Error() string {
	return fmt.Sprintf("service: stop: still running: %s; let handlers and publishers return when their contexts end, or raise Config.ShutdownTimeout",
		strings.Join(e.Pieces, ", "))
}

// piece is one of the parts that run until their context ends.
type piece struct {
	name string
	run  func(context.Context) error
}

// stage is pieces that start and stop together.
type stage struct {
	pieces []piece
	until  time.Duration // after the end of the service's context the next stage stops in any case

	stop  context.CancelFunc
	ended chan struct{}

	mu      sync.Mutex
	running []string
}

// start runs the pieces until stop is called. A piece that ends before is told to failed.
func (s *stage) start(ctx context.Context, failed func(error)) {
	ctx, s.stop = context.WithCancel(ctx)
	s.ended = make(chan struct{})
	var wg sync.WaitGroup
	for _, p := range s.pieces { // before any of them can end
		s.running = append(s.running, p.name)
	}
	for _, p := range s.pieces {
		wg.Go(func() {
			err := p.run(ctx)
			s.mu.Lock()
			s.running = slices.DeleteFunc(s.running, func(name string) bool { return name == p.name })
			s.mu.Unlock()
			switch {
			case err != nil:
				failed(fmt.Errorf("service: %s: %w", p.name, err))
			case ctx.Err() == nil:
				failed(fmt.Errorf("service: %s ended before its context", p.name))
			}
		})
	}
	go func() {
		wg.Wait()
		close(s.ended)
	}()
}

// left returns the names of the pieces that run.
func (s *stage) left() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.running)
}

// Run checks the server, starts the pieces and runs them until ctx ends or one of them fails. It then stops them in this
// order, each stage when the one before has ended or has used up its part of Config.ShutdownTimeout:
//
//  1. input, timers and repair. No more messages are read; handlers finish, commit and settle; partitions and messages that
//     were not handled are given back.
//  2. the relay. Calls of the Publisher finish, events are settled, and leases on the others are given back.
//  3. admin and HTTP.
//
// Run returns nil after the end of ctx, the error of the piece that failed, or a *StopError. It runs once.
func (s *Service) Run(ctx context.Context) error {
	if !s.begin() {
		return errors.New("service: Run has already run; create another Service")
	}
	if s.transactor != nil {
		if err := s.transactor.Check(ctx); err != nil {
			s.fail(err)
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("service: check the server: %w", err)
		}
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	work, stop := context.WithCancel(ctx)
	defer stop()
	for _, stage := range slices.Backward(s.stages) {
		stage.start(life, func(err error) {
			s.fail(err)
			stop()
		})
	}
	s.ready()
	<-work.Done()
	s.stopping()
	return s.stopStages(time.Now())
}

// stopStages stops one stage after the other. The first one began to stop at the time given.
func (s *Service) stopStages(began time.Time) error {
	var left []string
	for _, stage := range s.stages {
		stage.stop()
		timer := time.NewTimer(time.Until(began.Add(stage.until)))
		select {
		case <-stage.ended:
		case <-timer.C:
			left = append(left, stage.left()...)
		}
		timer.Stop()
	}
	errs := s.failures()
	if len(left) > 0 {
		errs = append(errs, &StopError{left})
	}
	return errors.Join(errs...)
}
