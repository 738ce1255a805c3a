package suite

import (
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/measure"
)

func TestNumbersAndSpreadsAreFormattedForReaders(t *testing.T) {
	t.Parallel()
	for n, want := range map[float64]string{
		0: "0", 1: "1", 2.5: "2.50", .0123: "0.012", 12.34: "12.3", 99.99: "100.0", 123.4: "123", 1234567: "1,234,567",
		-1500: "-1,500", 1000000.4: "1,000,000",
	} {
		if got := Number(n); got != want {
			t.Errorf("%v is written %s, want %s", n, got, want)
		}
	}
	if got := Spread(measure.Spread{Median: 2.81, Low: 2.6, High: 3.02}); got != "2.81 (2.60–3.02)" {
		t.Error(got)
	}
	if got := Spread(measure.Spread{Median: 2, Low: 2, High: 2}); got != "2" {
		t.Error(got)
	}
}

func TestGoalsAreUniqueAndMetAtTheirBound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		goal  Goal
		value float64
		met   bool
	}{
		{Goal{Bound: 2}, 2, true},
		{Goal{Bound: 2}, 1.99, false},
		{Goal{Bound: 2, Most: true}, 2, true},
		{Goal{Bound: 2, Most: true}, 2.01, false},
		{Goal{}, 0, true},
	} {
		if c.goal.Met(c.value) != c.met {
			t.Errorf("%+v with %v", c.goal, c.value)
		}
	}
	seen := map[string]bool{}
	for _, g := range Goals() {
		if g.Figure == "" || g.What == "" || seen[g.Figure] {
			t.Errorf("%+v", g)
		}
		seen[g.Figure] = true
	}
}

func TestReplaceNeedsItsMarkers(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "<!-- bench a -->\n", "<!-- bench a ends -->\n", "<!-- bench a ends -->\n<!-- bench a -->\n"} {
		if _, err := replace(text, "a", "s"); err == nil {
			t.Errorf("%q is written into", text)
		}
	}
}

func TestPlotWithoutMeasurementsDrawsNothing(t *testing.T) {
	t.Parallel()
	for _, log := range []bool{false, true} {
		p := Plot{X: []string{"1"}, LogY: log, Series: []Series{{Name: "s", Y: []measure.Spread{{}}}}}
		if svg, err := p.SVG(); err != nil || len(svg) == 0 {
			t.Errorf("log %t: %d bytes, %v", log, len(svg), err)
		}
	}
}

func TestTicksAreRoundNumbersWithinTheRange(t *testing.T) {
	t.Parallel()
	var got []string
	for _, tick := range ticks(.3, 21) {
		got = append(got, tick.Label)
	}
	if want := "0.5 1 2 5 10 20"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}
