package httpapi

import (
	"net/http"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/outbox"
)

type statsJSON struct {
	Title   string         `json:"title"`
	At      time.Time      `json:"at"`
	Counts  countsJSON     `json:"counts"`
	Totals  totalsJSON     `json:"totals"`
	Oldest  float64        `json:"oldest_due_seconds"`
	Age     float64        `json:"oldest_unpublished_seconds"`
	Blocked admin.Blocked  `json:"blocked"`
	Rates   *ratesJSON     `json:"rates,omitempty"`
	Top     []admin.Reason `json:"top"`
	Parked  parkedJSON     `json:"parked"`
}

type countsJSON struct {
	Pending int64 `json:"pending"`
	Leased  int64 `json:"leased"`
	Waiting int64 `json:"waiting"`
	Parked  int64 `json:"parked"`
	Sent    int64 `json:"sent"`
	Bytes   int64 `json:"bytes"`
}

// totalsJSON is the JSON of outbox.Totals.
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
	admin.Rates

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
	Destinations desk.Remainder `json:"destinations"`
	Types        desk.Remainder `json:"types"`
	Classes      desk.Remainder `json:"classes"`
}

func newCounts(c outbox.Counts) countsJSON {
	return countsJSON{c.Pending, c.Leased, c.Waiting, c.Parked, c.Sent, c.Bytes}
}

func newRates(s desk.Sample) *ratesJSON {
	if s.Rates == nil {
		return nil
	}
	return &ratesJSON{*s.Rates, s.Over.Seconds()}
}

// stats replies with the sums of all shards.
func (h *Handler) stats(c *guard.Call) error {
	now, err := h.desk.Samples.Now(c.R.Context())
	if err != nil {
		return err
	}
	s := now.Stats
	return c.Answer(http.StatusOK, statsJSON{
		h.desk.Title, s.At.UTC(), newCounts(s.Counts), totalsJSON(s.Counts.Totals), s.Oldest.Seconds(), s.OldestUnpublished.Seconds(),
		s.Blocked, newRates(now), orEmpty(s.Top(10)),
		parkedJSON{s.Parked.Total, s.Parked.ByDestination, s.Parked.ByType, s.Parked.ByClass, remaindersJSON{now.Destinations, now.Types, now.Classes}},
	})
}

// orEmpty replaces nil by an empty list, which JSON encodes as [].
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
