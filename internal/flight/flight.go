// Package flight lets callers share one run of a function.
package flight

import (
	"context"
	"fmt"
	"sync"
)

// A Group lets callers that need the same result at the same time share one run of a function. Each caller waits under
// its own context. The run ends when the last caller has left.
type Group struct {
	mu   sync.Mutex
	runs map[string]*run
}

type run struct {
	done   chan struct{} // closed when err is set
	err    error
	cancel context.CancelFunc

	callers int   // the number of callers that wait, under the lock of the Group
	last    error // the error of the latest failed attempt, under the lock of the Group
}

// Do runs a function and returns its error. If a run with that name is under way, Do joins it. If over is closed first,
// Do returns nil. If ctx ends first, Do returns the cause and the error of the run's latest failed attempt.
func (s *Group) Do(ctx context.Context, over <-chan struct{}, name string, f func(ctx context.Context, failed func(error)) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r := s.join(ctx, name, f)
	select {
	case <-r.done:
		return r.err
	case <-over:
		_ = s.leave(name, r)
		return nil
	case <-ctx.Done():
	}
	if last := s.leave(name, r); last != nil {
		return fmt.Errorf("%w; last: %w", context.Cause(ctx), last)
	}
	return context.Cause(ctx)
}

func (s *Group) join(ctx context.Context, name string, f func(ctx context.Context, failed func(error)) error) *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[name]; r != nil {
		r.callers++
		return r
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &run{done: make(chan struct{}), cancel: cancel, callers: 1}
	if s.runs == nil {
		s.runs = make(map[string]*run)
	}
	s.runs[name] = r
	go func() {
		defer cancel()
		r.err = f(ctx, func(err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			r.last = err
		})
		s.mu.Lock()
		s.remove(name, r)
		s.mu.Unlock()
		close(r.done)
	}()
	return r
}

// leave removes a caller from a run and returns the error of the run's latest failed attempt. It ends a run without
// callers.
func (s *Group) leave(name string, r *run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.callers--; r.callers == 0 {
		r.cancel()
		s.remove(name, r)
	}
	return r.last
}

// remove removes a run, so that another run of the name can begin. The caller holds the lock.
func (s *Group) remove(name string, r *run) {
	if s.runs[name] == r {
		delete(s.runs, name)
	}
}
