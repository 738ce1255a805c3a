// Package tenure keeps what luatx knows of one ownership of a partition for as long as that exists.
package tenure

import (
	"context"
	"sync"

	"github.com/luatx/luatx/internal/flight"
)

// State is what is known of a tenure. A message.Tenure embeds it under an unexported name. The zero value is empty.
type State struct {
	mu      sync.Mutex
	records map[string]*Record
	flights flight.Group
}

func (s *State) state() *State { return s }

// Of returns the record of a tenure for a name, such as that of a position.
func Of(t interface{ state() *State }, name string) *Record {
	s := t.state()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[name]
	if r == nil {
		if s.records == nil {
			s.records = make(map[string]*Record)
		}
		r = &Record{state: s, name: name}
		s.records[name] = r
	}
	return r
}

// Record is what is known of a tenure for one name.
type Record struct {
	state *State
	name  string

	// The state's lock guards these.
	generation int64          // 0: unknown
	attempts   map[string]int // failures by offset
}

// Generation returns the generation of the tenure. The first call gets it from mint; calls at the same time share that, and an error
// is not kept.
func (r *Record) Generation(ctx context.Context, mint func(ctx context.Context) (int64, error)) (int64, error) {
	if known := r.known(); known > 0 {
		return known, nil
	}
	err := r.state.flights.Do(ctx, nil, r.name, func(ctx context.Context, _ func(error)) error {
		if r.known() > 0 {
			return nil
		}
		minted, err := mint(ctx)
		if err == nil {
			r.state.mu.Lock()
			r.generation = minted
			r.state.mu.Unlock()
		}
		return err
	})
	return r.known(), err
}

func (r *Record) known() int64 {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	return r.generation
}

// Forget makes the next Generation call mint again.
func (r *Record) Forget() {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	r.generation = 0
}

// Fail counts a failure of the message with an offset and returns the number of its failures.
func (r *Record) Fail(offset string) int {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	if r.attempts == nil {
		r.attempts = make(map[string]int)
	}
	r.attempts[offset]++
	return r.attempts[offset]
}

// Pass forgets the failures of the message with an offset.
func (r *Record) Pass(offset string) {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	delete(r.attempts, offset)
}
