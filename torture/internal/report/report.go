// Package report says what a run has shown: as JSON, and as a page to look at.
package report

import (
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/luatx/luatx/torture/internal/verdict"
)

// Report is what a run has shown.
type Report struct {
	Seed     uint64  `json:"seed"`
	Replay   string  `json:"replay"` // the command that runs it again
	Topology string  `json:"topology"`
	Wait     int     `json:"wait"`
	Server   string  `json:"server"`
	Commit   string  `json:"commit"`
	Go       string  `json:"go"`
	Began    string  `json:"began"`
	Seconds  float64 `json:"seconds"`

	OK   bool   `json:"ok"`
	Void string `json:"void,omitempty"` // why the run shows nothing; empty: it shows something

	Commits    int            `json:"commits"`
	PerSecond  float64        `json:"commits_per_second"`
	Calls      int            `json:"calls"`
	Tries      map[string]int `json:"tries"` // of calls, by what they were told
	Runs       int            `json:"handler_runs"`
	Published  int            `json:"published"`
	Repeated   int            `json:"published_again"`
	FaultsAll  int            `json:"faults_total"`
	Faults     map[string]int `json:"faults"`
	Unfit      []string       `json:"faults_left_out,omitempty"`
	Invariants Invariants     `json:"invariants"`

	Recovery  map[string]Spread `json:"recovery_ms"` // from a fault's being lifted to the next commit of what it had concerned
	Lost      verdict.Losses    `json:"lost_in_failover"`
	DrainedMS int64             `json:"drained_ms"`

	Timeline []int   `json:"timeline"` // commits in each EveryMS
	EveryMS  int64   `json:"timeline_every_ms"`
	Events   []Event `json:"fault_list"`
}

// Invariants are checks by their names.
type Invariants []verdict.Check

// MarshalJSON makes an object of them.
func (i Invariants) MarshalJSON() ([]byte, error) {
	byName := make(map[string]verdict.Check, len(i))
	for _, check := range i {
		byName[check.Name] = check
	}
	return json.Marshal(byName)
}

// Event is a fault; its times are since the run's beginning.
type Event struct {
	Kind       string  `json:"kind"`
	Target     string  `json:"target,omitempty"`
	FromMS     int64   `json:"from_ms"`
	ToMS       int64   `json:"to_ms"`
	RecoveryMS float64 `json:"recovery_ms"`
	Err        string  `json:"error,omitempty"`
}

// Spread is how durations are spread, in milliseconds.
type Spread struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Most   float64 `json:"max"`
}

// Spreads are those of the recoveries of each kind.
func Spreads(events []Event) map[string]Spread {
	byKind := make(map[string][]float64)
	for _, e := range events {
		if e.Err == "" {
			byKind[e.Kind] = append(byKind[e.Kind], e.RecoveryMS)
		}
	}
	spreads := make(map[string]Spread)
	for kind, times := range byKind {
		slices.Sort(times)
		spreads[kind] = Spread{len(times), times[len(times)/2], times[len(times)-1]}
	}
	return spreads
}

// JSON writes the report.
func (r *Report) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Milliseconds is a duration in milliseconds, to the hundredth.
func Milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}
