package report_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/torture/internal/report"
	"github.com/luatx/luatx/torture/internal/verdict"
)

func sample() *report.Report {
	r := &report.Report{
		Seed: 7, Replay: "go run . --seed 7", Topology: "cluster", Server: "7.0.15", Commit: "abc", Seconds: 20, OK: false,
		Commits: 9000, PerSecond: 450, FaultsAll: 3, Faults: map[string]int{"kill-server": 2, "cut": 1},
		Invariants: report.Invariants{
			{Name: verdict.Money, OK: true, Checked: 100},
			{Name: verdict.NoGhosts, Checked: 50, Failed: 1, Problems: []string{"<script>alert(1)</script>"}},
		},
		Lost: verdict.Losses{Commits: 4, Ghosts: 2}, DrainedMS: 900,
		Timeline: []int{10, 20, 0, 30}, EveryMS: 500,
		Events: []report.Event{
			{Kind: "kill-server", FromMS: 1000, ToMS: 1500, RecoveryMS: 40},
			{Kind: "cut", FromMS: 3000, ToMS: 3500, RecoveryMS: 1},
			{Kind: "kill-server", FromMS: 5000, ToMS: 5500, RecoveryMS: 10},
			{Kind: "kill-server", FromMS: 7000, ToMS: 7500, Err: "the server was already down"},
		},
	}
	r.Recovery = report.Spreads(r.Events)
	return r
}

func TestJSONContainsInvariantsAndRecovery(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	redistest.Must(t, sample().JSON(&out))
	var got struct {
		Seed       uint64
		Commits    int
		Faults     map[string]int
		Invariants map[string]struct {
			OK      bool
			Checked int
		}
		Recovery map[string]report.Spread `json:"recovery_ms"`
		Lost     verdict.Losses           `json:"lost_in_failover"`
	}
	redistest.Must(t, json.Unmarshal(out.Bytes(), &got))
	money, ghosts := got.Invariants[verdict.Money], got.Invariants[verdict.NoGhosts]
	if got.Seed != 7 || got.Commits != 9000 || got.Faults["kill-server"] != 2 || !money.OK || money.Checked != 100 || ghosts.OK || got.Lost.Commits != 4 {
		t.Errorf("%+v", got)
	}
	if got.Recovery["kill-server"] != (report.Spread{N: 2, Median: 40, Most: 40}) {
		t.Errorf("a fault that failed has a recovery: %+v", got.Recovery)
	}
}

func TestHTMLIsSelfContained(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	redistest.Must(t, sample().HTML(&out))
	text := out.String()
	for _, want := range []string{"an invariant is violated", "&lt;script&gt;alert(1)", "polyline", "kill-server", "go run . --seed 7", "4 commits"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	for _, not := range []string{"http://", "https://", "src=", "<script", "NaN", "Inf"} {
		if strings.Contains(text, not) {
			t.Errorf("the page contains %q", not)
		}
	}
	if n := strings.Count(text, `<rect class="fault"`); n != 3 {
		t.Errorf("the page shows %d faults, want 3", n)
	}
}

func TestTextShowsEachInvariant(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	redistest.Must(t, sample().Text(&out))
	for _, want := range []string{"holds", "VIOLATED 1 times", "money is constant", "maximum 40 ms"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the text does not contain %q:\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := sample().Row(&out); err != nil || out.String() != "| cluster | 7 | 20 s | 9000 | 3 of 2 kinds | 0.0 s | 4, 0, 2 | 0.9 s | violated | 7.0.15, abc |\n" {
		t.Errorf("%v, %s", err, out.String())
	}
	if got := report.Milliseconds(1234567 * time.Nanosecond); got != 1.23 {
		t.Error(got)
	}
}
