package desk

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/luatx/luatx/admin"
)

// Sample holds the numbers at a time.
type Sample struct {
	// Stats names the topNames largest destinations, types and classes of parked events.
	Stats admin.Stats
	// Destinations, Types and Classes count the names that Stats leaves out.
	Destinations, Types, Classes Remainder
	// Rates are the rates since the previous sample, or nil if there is none, or if it is older than rateOver.
	Rates *admin.Rates
	Over  time.Duration // the duration of the rates
}

// topNames is the number of destinations, types and classes in a sample. Producers choose these names, and may choose many.
const topNames = 100

// Remainder is the sum of the names that a sample leaves out.
type Remainder struct {
	Names  int   `json:"names"`
	Events int64 `json:"events"`
}

// largest returns a copy of the largest counts, and the sum of the others. It leaves out names with a count of 0.
func largest(counts map[string]int64) (map[string]int64, Remainder) {
	names := make([]string, 0, len(counts))
	for name, n := range counts {
		if n > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	kept, rest := map[string]int64{}, Remainder{}
	for i, name := range names {
		if i < topNames {
			kept[strings.Clone(name)] = counts[name]
			continue
		}
		rest.Names++
		rest.Events += counts[name]
	}
	return kept, rest
}

// freshness is how long a sample is reused, so that many readers cost no more than one.
const freshness = time.Second

// rateOver is the longest time over which a sample has rates.
const rateOver = time.Minute

// Samples keeps the last sample.
type Samples struct {
	op   *admin.Operator
	turn chan struct{} // held by the caller that queries the server

	mu    sync.Mutex
	last  Sample
	taken time.Time
}

func newSamples(op *admin.Operator) *Samples {
	return &Samples{op: op, turn: make(chan struct{}, 1)}
}

// Now returns the numbers. It reads them from the servers at most once a second.
func (s *Samples) Now(ctx context.Context) (Sample, error) {
	if found, ok := s.fresh(); ok {
		return found, nil
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return Sample{}, context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	if found, ok := s.fresh(); ok {
		return found, nil
	}
	stats, err := s.op.Stats(ctx)
	if err != nil {
		return Sample{}, err
	}
	return s.keep(stats, time.Now()), nil
}

func (s *Samples) fresh() (Sample, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, !s.taken.IsZero() && time.Since(s.taken) < freshness
}

// keep creates a sample and stores it as the last one.
func (s *Samples) keep(stats admin.Stats, at time.Time) Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := Sample{Stats: stats}
	parked := &now.Stats.Parked
	parked.ByDestination, now.Destinations = largest(parked.ByDestination)
	parked.ByType, now.Types = largest(parked.ByType)
	parked.ByClass, now.Classes = largest(parked.ByClass)
	if over := stats.At.Sub(s.last.Stats.At); !s.taken.IsZero() && over <= rateOver {
		rates := stats.Rates(s.last.Stats)
		now.Rates, now.Over = &rates, over
	}
	s.last, s.taken = now, at
	return now
}
