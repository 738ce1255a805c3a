package admin

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/luatx/luatx/outbox"
)

// sample is the numbers at a time.
type sample struct {
	// Stats names the topNames largest destinations, types and classes of parked events. In the ring it names none.
	Stats Stats
	// Destinations, Types and Classes count the ones that Stats does not name.
	Destinations, Types, Classes remainder
	// Rates are since the sample before; nil: there is none.
	Rates *Rates
	Over  time.Duration // the rates'
}

// topNames is how many destinations, types and classes a sample names: producers choose these names, and may choose many.
const topNames = 100

// remainder is the sum of the names that a sample leaves out.
type remainder struct {
	Names  int   `json:"names"`
	Events int64 `json:"events"`
}

// largest returns a copy of the largest counts, and the sum of the others. Names that count nothing are left out.
func largest(counts map[string]int64) (map[string]int64, remainder) {
	names := make([]string, 0, len(counts))
	for name, n := range counts {
		if n > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	kept, rest := map[string]int64{}, remainder{}
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

// freshness is for how long a sample is as good as a new one: many that look cost no more than one.
const freshness = time.Second

// samples keeps the numbers of an hour.
type samples struct {
	every time.Duration
	turn  chan struct{} // held by who asks the server

	mu    sync.Mutex
	ring  []sample
	last  sample
	taken time.Time
	kept  time.Time
}

func newSamples(every time.Duration) *samples {
	return &samples{every: every, turn: make(chan struct{}, 1)}
}

// now returns the numbers, asking the server at most once a second.
func (s *samples) now(ctx context.Context, op *Operator) (sample, error) {
	if found, ok := s.fresh(); ok {
		return found, nil
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return sample{}, context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	if found, ok := s.fresh(); ok {
		return found, nil
	}
	stats, err := op.Stats(ctx)
	if err != nil {
		return sample{}, err
	}
	return s.keep(stats, time.Now()), nil
}

func (s *samples) fresh() (sample, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, !s.taken.IsZero() && time.Since(s.taken) < freshness
}

// keep makes a sample, and keeps it in the ring where the last one there is old enough.
func (s *samples) keep(stats Stats, at time.Time) sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := sample{Stats: stats}
	parked := &now.Stats.Parked
	parked.ByDestination, now.Destinations = largest(parked.ByDestination)
	parked.ByType, now.Types = largest(parked.ByType)
	parked.ByClass, now.Classes = largest(parked.ByClass)
	if !s.taken.IsZero() {
		rates := stats.Rates(s.last.Stats)
		now.Rates, now.Over = &rates, stats.At.Sub(s.last.Stats.At)
	}
	s.last, s.taken = now, at
	if s.kept.IsZero() || at.Sub(s.kept) >= s.every*9/10 {
		most := max(1, int(time.Hour/s.every))
		bare := now // charts need numbers alone
		bare.Stats.Parked, bare.Stats.Paused = outbox.Overview{Total: stats.Parked.Total}, nil
		s.ring, s.kept = append(s.ring[max(0, len(s.ring)-most+1):], bare), at
	}
	return now
}

// list returns the samples of the last hour, oldest first.
func (s *samples) list() []sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ring)
}

type statsJSON struct {
	Title  string     `json:"title"`
	At     time.Time  `json:"at"`
	Counts countsJSON `json:"counts"`
	Totals totalsJSON `json:"totals"`
	Oldest float64    `json:"oldest_due_seconds"`
	Rates  *ratesJSON `json:"rates,omitempty"`
	Top    []Reason   `json:"top"`
	Parked parkedJSON `json:"parked"`
}

type countsJSON struct {
	Pending int64 `json:"pending"`
	Leased  int64 `json:"leased"`
	Waiting int64 `json:"waiting"`
	Parked  int64 `json:"parked"`
	Sent    int64 `json:"sent"`
	Bytes   int64 `json:"bytes"`
}

// totalsJSON are outbox.Totals.
type totalsJSON struct {
	Enqueued  int64 `json:"enqueued"`
	Duplicate int64 `json:"duplicate"`
	Sent      int64 `json:"sent"`
	Failed    int64 `json:"failed"`
	Parked    int64 `json:"parked"`
	Orphans   int64 `json:"orphans"`
	Discarded int64 `json:"discarded"`
	Imported  int64 `json:"imported"`
	Replayed  int64 `json:"replayed"`
	Erased    int64 `json:"erased"`
}

type ratesJSON struct {
	Rates

	Over float64 `json:"over_seconds"`
}

type parkedJSON struct {
	Total         int64            `json:"total"`
	ByDestination map[string]int64 `json:"by_destination"`
	ByType        map[string]int64 `json:"by_type"`
	ByClass       map[string]int64 `json:"by_class"`
	Remainder     remaindersJSON   `json:"remainder"`
}

// remaindersJSON counts the names that are not among the largest.
type remaindersJSON struct {
	Destinations remainder `json:"destinations"`
	Types        remainder `json:"types"`
	Classes      remainder `json:"classes"`
}

func newCounts(c outbox.Counts) countsJSON {
	return countsJSON{c.Pending, c.Leased, c.Waiting, c.Parked, c.Sent, c.Bytes}
}

func newRates(s sample) *ratesJSON {
	if s.Rates == nil {
		return nil
	}
	return &ratesJSON{*s.Rates, s.Over.Seconds()}
}

// stats answers with the numbers.
func (h *Handler) stats(c *call) error {
	if err := c.only(); err != nil {
		return err
	}
	now, err := h.samples.now(c.r.Context(), h.op)
	if err != nil {
		return err
	}
	s := now.Stats
	return c.answer(http.StatusOK, statsJSON{
		h.cfg.Title, s.At.UTC(), newCounts(s.Counts), totalsJSON(s.Counts.Totals), s.Oldest.Seconds(), newRates(now), orEmpty(s.Top(10)),
		parkedJSON{s.Parked.Total, s.Parked.ByDestination, s.Parked.ByType, s.Parked.ByClass, remaindersJSON{now.Destinations, now.Types, now.Classes}},
	})
}

type sampleJSON struct {
	At     time.Time  `json:"at"`
	Counts countsJSON `json:"counts"`
	Oldest float64    `json:"oldest_due_seconds"`
	Rates  *ratesJSON `json:"rates,omitempty"`
}

// history answers with the samples of the last hour.
func (h *Handler) history(c *call) error {
	if err := c.only(); err != nil {
		return err
	}
	all := []sampleJSON{}
	for _, s := range h.samples.list() {
		all = append(all, sampleJSON{s.Stats.At.UTC(), newCounts(s.Stats.Counts), s.Stats.Oldest.Seconds(), newRates(s)})
	}
	return c.answer(http.StatusOK, map[string]any{"samples": all, "every_seconds": h.cfg.SampleEvery.Seconds()})
}

// orEmpty makes a list that JSON writes as one.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
