package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/torture/internal/report"
	"github.com/luatx/luatx/torture/internal/work"
)

// asMember makes the test program a process of a run.
const asMember = "LUATX_TORTURE_MEMBER"

func TestMain(m *testing.M) {
	if os.Getenv(asMember) != "" {
		os.Exit(work.Main(os.Stdin, os.Stdout, os.Stderr))
	}
	if err := os.Setenv(asMember, "1"); err != nil { // for all processes that this one starts
		panic(err)
	}
	redistest.Main(m)
}

// mustHold runs the program and fails the test if an invariant is violated.
func mustHold(t *testing.T, args ...string) *report.Report {
	t.Helper()
	redistest.Need(t)
	var log, out bytes.Buffer
	o, err := parse(args, &log)
	redistest.Must(t, err)
	o.Dir, o.FailFast = t.TempDir(), true
	r, err := torture(t.Context(), o, &log)
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	redistest.Must(t, r.Text(&out))
	t.Logf("\n%s", out.String())
	if !r.OK || r.Void != "" {
		t.Errorf("an invariant is violated, or the run is void; log:\n%s", log.String())
	}
	return r
}

// TestInvariantsHoldWhenProcessesFail checks all invariants for 30 s while processes are killed and paused, indexes are damaged, and settlements
// are late.
func TestInvariantsHoldWhenProcessesFail(t *testing.T) {
	r := mustHold(t, "--for", "30s", "--rate", "600", "--seed", "1", "--no-clock", "--no-disk",
		"--nemeses", "kill-worker,kill-relay,die-before-script,stop-worker,stop-relay,lose-index,stale-lease")
	for _, kind := range []string{"kill-worker", "kill-relay", "die-before-script", "stop-worker", "stop-relay", "lose-index", "stale-lease"} {
		if r.Faults[kind] == 0 {
			t.Errorf("no fault of kind %s was inflicted", kind)
		}
	}
	for _, check := range r.Invariants {
		if check.Checked == 0 {
			t.Errorf("invariant %q was never checked", check.Name)
		}
	}
}

// skipUnlessVerifying skips tests that take minutes.
func skipUnlessVerifying(t *testing.T) {
	t.Helper()
	if os.Getenv("LUATX_VERIFY") == "" {
		t.Skip("takes minutes: set LUATX_VERIFY=1")
	}
}

// TestInvariantsHoldOnSingleServer checks all invariants on one server with faults of all kinds.
func TestInvariantsHoldOnSingleServer(t *testing.T) {
	skipUnlessVerifying(t)
	requireAllFaults(t, mustHold(t, "--for", "2m", "--seed", "2"))
}

// TestInvariantsHoldOnCluster checks them on a cluster, where failovers may lose commits but nothing else.
func TestInvariantsHoldOnCluster(t *testing.T) {
	skipUnlessVerifying(t)
	requireAllFaults(t, mustHold(t, "--for", "2m", "--seed", "3", "--topology", "cluster"))
}

// TestBarrierProtectsReplicatedCommits checks that no replicated commit is lost, and that no event is published before its
// commit is replicated.
func TestBarrierProtectsReplicatedCommits(t *testing.T) {
	skipUnlessVerifying(t)
	r := mustHold(t, "--for", "1m", "--seed", "4", "--topology", "cluster", "--wait", "1", "--no-clock", "--nemeses", "lag-then-kill")
	if r.Faults["lag-then-kill"] < 5 || r.Lost.Ghosts > 0 {
		t.Errorf("%d masters were killed, %d events of lost commits were published", r.Faults["lag-then-kill"], r.Lost.Ghosts)
	}
}

// requireAllFaults fails the test unless every kind of fault that the run supports was inflicted.
func requireAllFaults(t *testing.T, r *report.Report) {
	t.Helper()
	fit := 0
	for _, e := range r.Events {
		if e.Err == "" {
			fit++
		}
	}
	if len(r.Faults) < 15 || fit < 30 {
		t.Errorf("%d faults of %d kinds were inflicted", fit, len(r.Faults))
	}
}

func TestExitStatusReportsResultAndRunLeavesNoFiles(t *testing.T) {
	redistest.Need(t)
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"--for", "1ms"}, statusVoid},
		{[]string{"--help"}, statusFine},
		{[]string{"--floor", "1e9"}, statusVoid},
		{[]string{"--floor", "1", "--json"}, statusFine},
	} {
		dir := t.TempDir()
		var out, errs bytes.Buffer
		args := append([]string{"--for", "1s", "--rate", "200", "--no-clock", "--no-disk", "--nemeses", "cut-all", "--dir", dir, "--out", dir}, c.args...)
		if got := command(t.Context(), args, &out, &errs); got != c.want {
			t.Errorf("%v: status %d, want %d\n%s%s", c.args, got, c.want, out.String(), errs.String())
		}
		left, err := filepath.Glob(filepath.Join(dir, "luatx-torture-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("files left behind: %v, %v", left, err)
		}
		if len(c.args) == 3 {
			page, err := os.ReadFile(filepath.Join(dir, "report.html"))
			if err != nil || !json.Valid(out.Bytes()) || !bytes.Contains(page, []byte("every invariant holds")) {
				t.Errorf("invalid report: %v\n%s", err, out.String())
			}
		}
	}
}

func TestParseRejectsInvalidOptions(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--topology ring":            "use single or cluster",
		"--for 1ms":                  "use at least a second",
		"--workers 0":                "use at least one worker",
		"--rate 0":                   "use a rate above 0",
		"--wait 1":                   "with a cluster",
		"--nemeses kill-worker,rain": "rain",
	} {
		if _, err := parse(strings.Fields(args), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	o, err := parse([]string{"--for", "10m"}, &bytes.Buffer{})
	if err != nil || o.Seed == 0 || o.For != 10*time.Minute {
		t.Errorf("%+v, %v", o, err)
	}
}
