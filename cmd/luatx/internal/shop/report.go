package shop

import (
	"encoding/json"
	"io"
	"math"
	"slices"
	"time"
)

// Result is what a run in one mode came to, read back from the store.
type Result struct {
	Messages      int     `json:"messages"`    // invoices fed in
	Applied       int     `json:"applied"`     // invoices booked at least once
	Lost          int     `json:"lost"`        // not applied once streams and pending lists were quiet
	Doubled       int     `json:"doubled"`     // applied more than once
	EventsLost    int     `json:"events_lost"` // lines sold that never reached the stock
	MoneyOffPence int64   `json:"money_off_pence"`
	StockOff      int64   `json:"stock_off"` // units
	Kills         int     `json:"kills"`
	PerSecond     float64 `json:"per_second"` // messages applied
	P50Ms         float64 `json:"p50_ms"`
	P99Ms         float64 `json:"p99_ms"`
	SpentSHA256   string  `json:"spent_sha256"`
	StockSHA256   string  `json:"stock_sha256"`
}

// Pace fills in the speed: messages applied over the time the run took, and the percentiles of the messages' latencies.
func (r *Result) Pace(took time.Duration, latencies []time.Duration) {
	r.PerSecond, r.P50Ms, r.P99Ms = 0, 0, 0
	if took > 0 {
		r.PerSecond = round(float64(r.Applied)/took.Seconds(), 1)
	}
	sorted := slices.Sorted(slices.Values(latencies))
	r.P50Ms, r.P99Ms = millis(percentile(sorted, 50)), millis(percentile(sorted, 99))
}

// percentile is the smallest of the sorted durations that at least p percent of them do not exceed; zero where there are none.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func millis(d time.Duration) float64 { return round(d.Seconds()*1000, 2) }

func round(x float64, decimals int) float64 {
	scale := math.Pow10(decimals)
	return math.Round(x*scale) / scale
}

// Report is what the demo prints: the modes that ran, and what was expected.
type Report struct {
	Pipeline *Result  `json:"pipeline,omitempty"`
	Scripted *Result  `json:"scripted,omitempty"`
	Expected Expected `json:"expected"`
}

// OK is false where the scripted mode ran and its books are not exact.
func (r Report) OK() bool { return r.Scripted == nil || r.Expected.Exact(*r.Scripted) }

// WriteJSON writes the report as one JSON object.
func (r Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
