// Package report presents the result of a run as JSON, text and an HTML page.
package report

import (
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/luatx/luatx/torture/internal/verdict"
)

// Report is the result of a run.
type Report struct {
	Seed     uint64  `json:"seed"`
	Replay   string  `json:"replay"` // the command that repeats the run
	Topology string  `json:"topology"`
	Wait     int     `json:"wait"`
	Server   string  `json:"server"`
	Commit   string  `json:"commit"`
	Go       string  `json:"go"`
	Began    string  `json:"began"`
	Seconds  float64 `json:"seconds"`

	OK   bool   `json:"ok"`
	Void string `json:"void,omitempty"` // why the run is not valid; empty if it is

	Commits    int            `json:"commits"`
	PerSecond  float64        `json:"commits_per_second"`
	Calls      int            `json:"calls"`
	Tries      map[string]int `json:"tries"` // number of tries of calls by outcome
	Runs       int            `json:"handler_runs"`
	Published  int            `json:"published"`
	Repeated   int            `json:"published_again"`
	FaultsAll  int            `json:"faults_total"`
	Faults     map[string]int `json:"faults"`
	Unfit      []string       `json:"faults_left_out,omitempty"`
	Invariants Invariants     `json:"invariants"`

	Recovery  map[string]Spread `json:"recovery_ms"` // time from the end of a fault to the next commit of the affected branches
	Lost      verdict.Losses    `json:"lost_in_failover"`
	DrainedMS int64             `json:"drained_ms"`

	Timeline []int   `json:"timeline"` // number of commits in each interval of EveryMS
	EveryMS  int64   `json:"timeline_every_ms"`
	Events   []Event `json:"fault_list"`
}

// Invariants are the checks of the run's invariants.
type Invariants []verdict.Check

// MarshalJSON encodes them as an object with the names as keys.
func (i Invariants) MarshalJSON() ([]byte, error) {
	byName := make(map[string]verdict.Check, len(i))
	for _, check := range i {
		byName[check.Name] = check
	}
	return json.Marshal(byName)
}

// Event is a fault. Its times are relative to the run's start.
type Event struct {
	Kind       string  `json:"kind"`
	Target     string  `json:"target,omitempty"`
	FromMS     int64   `json:"from_ms"`
	ToMS       int64   `json:"to_ms"`
	RecoveryMS float64 `json:"recovery_ms"`
	Err        string  `json:"error,omitempty"`
}

// Spread is the distribution of durations, in milliseconds.
type Spread struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Most   float64 `json:"max"`
}

// Spreads returns the distribution of the recovery times of each kind.
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

// JSON writes the report as JSON.
func (r *Report) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Milliseconds returns a duration in milliseconds, rounded to a hundredth.
func Milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}
