package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// fixed returns a group with known numbers.
func fixed(name, figure string, value float64) suite.Group {
	return suite.Group{Name: name, Run: func(_ context.Context, env suite.Env) (suite.Report, error) {
		report := suite.Report{Title: "The " + name, Intro: "What it is.", Figures: map[string]measure.Spread{}}
		if env.Wanted("cell") {
			report.Figures[figure] = measure.Spread{Median: value, Low: value - 1, High: value + 1}
			report.Plots = []suite.Plot{{Name: name, Title: "t", X: []string{"1", "8"}, LogY: true, Series: []suite.Series{
				{Name: "s", Y: []measure.Spread{{Median: 2, Low: 1, High: 3}, {}}},
			}}}
		}
		return report, nil
	}}
}

func TestBenchWritesItsResults(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	dir := t.TempDir()
	doc := filepath.Join(dir, "measurements.md")
	before := "# P\n\n<!-- bench a -->\nold\n<!-- bench a ends -->\n\n<!-- bench b -->\n<!-- bench b ends -->\ntail\n"
	if err := os.WriteFile(doc, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	groups := []suite.Group{fixed("a", "way_vs_asynq", 7), fixed("b", "inbox_bytes", 120)}
	for range 2 { // the second run finds the sections of the first
		var out, progress bytes.Buffer
		if status := bench(t.Context(), groups, []string{"--out", dir}, &out, &progress); status != 0 {
			t.Fatal(status, progress.String())
		}
	}
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"### The a", "| `way_vs_asynq` | messages per second from end to end with 64 in flight, relative to asynq | at least 6 | 7 (6–8) | met |",
		"at most 100 | 120 (119–121) | **missed** |", "![t](img/b.svg)", "median of 5 interleaved rounds", "\ntail\n",
	} {
		if strings.Count(string(text), want) != 1 && want != "median of 5 interleaved rounds" || !strings.Contains(string(text), want) {
			t.Errorf("the document must contain %q once:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "old") {
		t.Error("the old section is still in the document")
	}
	if svg, err := os.ReadFile(filepath.Join(dir, "img", "a.svg")); err != nil || !bytes.Contains(svg, []byte("</svg>")) {
		t.Errorf("the plot is %.100s, %v", svg, err)
	}
}

func TestBenchWritesJSON(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	for only, want := range map[string]string{"": "inbox_bytes way_vs_asynq", "^b$": "inbox_bytes", "a/cell": "way_vs_asynq", "a/other": ""} {
		var out, progress bytes.Buffer
		groups := []suite.Group{fixed("a", "way_vs_asynq", 7), fixed("b", "inbox_bytes", 120)}
		if status := bench(t.Context(), groups, []string{"--json", "--short", "--only", only}, &out, &progress); status != 0 {
			t.Fatal(status, progress.String())
		}
		var got struct {
			Figures map[string]float64 `json:"figures"`
			Missed  []string           `json:"missed"`
			Short   bool               `json:"short"`
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err, out.String())
		}
		for name := range strings.FieldsSeq(want) {
			if got.Figures[name] == 0 {
				t.Errorf("--only %q: figure %s is missing in %v", only, name, got.Figures)
			}
		}
		if len(got.Figures) != len(strings.Fields(want)) || !got.Short || (len(got.Missed) == 1) != strings.Contains(want, "inbox_bytes") {
			t.Errorf("--only %q: %+v, want %s", only, got, want)
		}
	}
}

func TestBenchReportsInvalidFlagsAndFailedRuns(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	sick := suite.Group{Name: "sick", Run: func(context.Context, suite.Env) (suite.Report, error) { return suite.Report{}, errors.New("no more") }}
	for name, c := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"failing group":       {[]string{"--out", "-"}, 1, "sick: no more"},
		"unknown flag":        {[]string{"--nosuch"}, 2, "nosuch"},
		"invalid pattern":     {[]string{"--only", "("}, 2, "missing closing )"},
		"unexpected argument": {[]string{"short"}, 2, `unexpected arguments ["short"]`},
		"missing document":    {[]string{"--only", "well", "--out", t.TempDir()}, 1, "measurements.md"},
		"help":                {[]string{"--help"}, 0, "-rounds"},
	} {
		var out, progress bytes.Buffer
		status := bench(t.Context(), []suite.Group{sick, fixed("well", "way_vs_asynq", 4)}, c.args, &out, &progress)
		if status != c.status || !strings.Contains(progress.String(), c.says) {
			t.Errorf("%s: status %d, %s", name, status, &progress)
		}
	}
}

func TestDocumentHasASectionForEachGroup(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/measurements.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups() {
		for _, marker := range []string{"<!-- bench " + g.Name + " -->\n", "<!-- bench " + g.Name + " ends -->\n"} {
			if strings.Count(string(text), marker) != 1 {
				t.Errorf("docs/measurements.md does not contain %q", marker)
			}
		}
	}
}
