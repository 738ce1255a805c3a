package shop

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/luatx/luatx/internal/test/redistest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		redistest.Must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	redistest.Must(t, err)
	if got != string(want) {
		t.Errorf("%s differs; it is now\n%s", name, got)
	}
}

func sampleReport() Report {
	e := Expect(BuiltIn(1))
	scripted := exactResult(e)
	scripted.Kills, scripted.PerSecond, scripted.P50Ms, scripted.P99Ms = 11, 1412.5, 3.1, 48.25
	pipeline := Result{
		Messages: 300, Applied: 293, Lost: 7, Doubled: 1, EventsLost: 31, MoneyOffPence: 12_345_678, StockOff: 1_287,
		Kills: 11, PerSecond: 983.2, P50Ms: 4.02, P99Ms: 1052.3, SpentSHA256: "aa", StockSHA256: "bb",
	}
	return Report{Pipeline: &pipeline, Scripted: &scripted, Expected: e}
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*[mK]")

func TestTableIsTheSameTextWithAndWithoutColor(t *testing.T) {
	t.Parallel()
	both := sampleReport()
	reports := map[string]Report{
		"both.txt":     both,
		"scripted.txt": {Scripted: both.Scripted, Expected: both.Expected},
		"pipeline.txt": {Pipeline: both.Pipeline, Expected: both.Expected},
	}
	for name, report := range reports {
		var out, coloured bytes.Buffer
		redistest.Must(t, errors.Join(report.WriteTable(&out, false), report.WriteTable(&coloured, true)))
		golden(t, name, out.String())
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: colour where none is wanted", name)
		}
		if escapes.ReplaceAllString(coloured.String(), "") != out.String() {
			t.Errorf("%s: with colour it says something else", name)
		}
	}
	var coloured bytes.Buffer
	redistest.Must(t, both.WriteTable(&coloured, true))
	golden(t, "colour.txt", coloured.String())
}

func TestTableOfWidestNumbersFitsEightyColumns(t *testing.T) {
	t.Parallel()
	wide := Result{
		Messages: 5_000_000, Applied: 4_999_999, Lost: 1_000_000, Doubled: 1_000_000, EventsLost: 10_000_000,
		MoneyOffPence: 999_999_999_999, StockOff: 999_999_999, Kills: 100_000, PerSecond: 1e6, P50Ms: 1e6, P99Ms: 1e7,
	}
	var out bytes.Buffer
	redistest.Must(t, (Report{Pipeline: &wide, Scripted: &wide}).WriteTable(&out, false))
	for line := range strings.SplitSeq(out.String(), "\n") {
		if utf8.RuneCountInString(line) > 80 {
			t.Errorf("wider than 80 columns: %q", line)
		}
	}
}

func TestVerdictNamesEachDifference(t *testing.T) {
	t.Parallel()
	e := Expect(smallOrders())
	exact := exactResult(e)
	differing := exact
	differing.SpentSHA256 = "other"
	for want, result := range map[string]Result{
		"books exact, 4 invoices applied once each.":   exact,
		"lost 1 of 4 invoices.":                        {Lost: 1},
		"applied 1,234 twice, lost 1 event.":           {Doubled: 1234, EventsLost: 1},
		"money off by £1,234.05, stock off by 1 unit.": {MoneyOffPence: 123_405, StockOff: 1},
		"the books differ from the orders.":            differing,
	} {
		if got := e.Verdict(result); got != want {
			t.Errorf("verdict is %q, want %q", got, want)
		}
	}
}

func TestJSONReportHasEveryFieldOfModesThatRan(t *testing.T) {
	t.Parallel()
	report := sampleReport()
	var out bytes.Buffer
	redistest.Must(t, report.WriteJSON(&out))
	golden(t, "both.json", out.String())
	var back map[string]map[string]any
	redistest.Must(t, json.Unmarshal(out.Bytes(), &back))
	want := []string{
		"applied", "doubled", "events_lost", "kills", "lost", "messages", "money_off_pence", "p50_ms", "p99_ms",
		"per_second", "spent_sha256", "stock_off", "stock_sha256",
	}
	for _, mode := range []string{"pipeline", "scripted"} {
		if names := slices.Sorted(maps.Keys(back[mode])); !slices.Equal(names, want) {
			t.Errorf("%s has %q", mode, names)
		}
	}
	out.Reset()
	if err := (Report{Scripted: report.Scripted}).WriteJSON(&out); err != nil || strings.Contains(out.String(), "pipeline") {
		t.Errorf("a mode that did not run: %s, %v", &out, err)
	}
}

func TestReportIsOKOnlyIfScriptedBooksAreExact(t *testing.T) {
	t.Parallel()
	report := sampleReport()
	if !report.OK() {
		t.Error("exact scripted books are not OK")
	}
	if !(Report{Pipeline: report.Pipeline, Expected: report.Expected}).OK() {
		t.Error("a pipeline that lost messages is not OK")
	}
	report.Scripted.Lost++
	if report.OK() {
		t.Error("a scripted mode that lost a message is OK")
	}
}

func TestPercentileIsTheNearestRank(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, test := range []struct {
		sorted []time.Duration
		p      float64
		want   time.Duration
	}{
		{nil, 50, 0},
		{hundred[:1], 99, 1},
		{hundred[:2], 50, 1},
		{hundred[:3], 50, 2},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
		{hundred, 0, 1},
	} {
		if got := percentile(test.sorted, test.p); got != test.want {
			t.Errorf("p%v of %d is %d, want %d", test.p, len(test.sorted), got, test.want)
		}
	}
}

func TestPaceIsComputedWithoutReorderingLatencies(t *testing.T) {
	t.Parallel()
	latencies := []time.Duration{30 * time.Millisecond, 10 * time.Millisecond, 1234567 * time.Nanosecond}
	r := Result{Applied: 100}
	r.Pace(3*time.Second, latencies)
	if r.PerSecond != 33.3 || r.P50Ms != 10 || r.P99Ms != 30 {
		t.Errorf("pace is %+v", r)
	}
	if latencies[0] != 30*time.Millisecond {
		t.Error("the caller's latencies are reordered")
	}
	r.Pace(0, nil)
	if !reflect.DeepEqual(r, Result{Applied: 100}) {
		t.Errorf("the pace of nothing is %+v", r)
	}
}
