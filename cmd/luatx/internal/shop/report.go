package shop

import (
	"encoding/json"
	"io"
	"math"
	"slices"
	"time"
)

// Result is the result of a run in one mode, read from the store.
type Result struct {
	Messages      int     `json:"messages"`    // number of invoices
	Applied       int     `json:"applied"`     // invoices booked at least once
	Lost          int     `json:"lost"`        // not applied when streams and pending lists were empty
	Doubled       int     `json:"doubled"`     // applied more than once
	EventsLost    int     `json:"events_lost"` // sold lines that never reached the stock
	MoneyOffPence int64   `json:"money_off_pence"`
	StockOff      int64   `json:"stock_off"` // in units
	Kills         int     `json:"kills"`
	PerSecond     float64 `json:"per_second"` // applied messages
	P50Ms         float64 `json:"p50_ms"`
	P99Ms         float64 `json:"p99_ms"`
	SpentSHA256   string  `json:"spent_sha256"`
	StockSHA256   string  `json:"stock_sha256"`
}

// Pace sets the speed: applied messages per second of the run, and the percentiles of the latencies.
func (r *Result) Pace(took time.Duration, latencies []time.Duration) {
	r.PerSecond, r.P50Ms, r.P99Ms = 0, 0, 0
	if took > 0 {
		r.PerSecond = round(float64(r.Applied)/took.Seconds(), 1)
	}
	sorted := slices.Sorted(slices.Values(latencies))
	r.P50Ms, r.P99Ms = millis(percentile(sorted, 50)), millis(percentile(sorted, 99))
}

// percentile returns the smallest of the sorted durations that at least p percent of them do not exceed, or zero if there
// are none.
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

// Report is the output of the demo: the results of the modes that ran, and the expected books.
type Report struct {
	Pipeline *Result  `json:"pipeline,omitempty"`
	Scripted *Result  `json:"scripted,omitempty"`
	Expected Expected `json:"expected"`
}

// OK reports whether the books of scripted mode are exact. It returns true if that mode did not run.
func (r Report) OK() bool { return r.Scripted == nil || r.Expected.Exact(*r.Scripted) }

// WriteJSON writes the report as one JSON object.
func (r Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
