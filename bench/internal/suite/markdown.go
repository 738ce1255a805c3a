package suite

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/luatx/luatx/internal/test/measure"
)

// Markdown returns the section of docs/measurements.md. Its pictures are links to files in img.
func (r Report) Markdown(env string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s\n\n%s\n\n", r.Title, strings.TrimSpace(r.Intro), env)
	b.WriteString(r.goals().markdown())
	for _, grid := range r.Grids {
		b.WriteString(grid.markdown())
	}
	for _, plot := range r.Plots {
		fmt.Fprintf(&b, "![%s](img/%s.svg)\n\n", plot.Title, plot.Name)
	}
	if r.Notes != "" {
		b.WriteString(strings.TrimSpace(r.Notes) + "\n\n")
	}
	return strings.TrimSpace(b.String()) + "\n"
}

// goals lists the section's figures with their goals.
func (r Report) goals() Grid {
	grid := Grid{Head: []string{"figure", "meaning", "goal", "measured", ""}}
	for _, goal := range Goals() {
		got, ok := r.Figures[goal.Figure]
		if !ok {
			continue
		}
		verdict := "met"
		if !goal.Met(got.Median) {
			verdict = "**missed**"
		}
		grid.Rows = append(grid.Rows, []string{"`" + goal.Figure + "`", goal.What, goal.bound(), Spread(got), verdict})
	}
	return grid
}

func (g Goal) bound() string {
	if g.Most {
		return "at most " + Number(g.Bound)
	}
	return "at least " + Number(g.Bound)
}

func (g Grid) markdown() string {
	if len(g.Rows) == 0 {
		return ""
	}
	var b strings.Builder
	if g.Caption != "" {
		fmt.Fprintf(&b, "%s\n\n", g.Caption)
	}
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(g.Head)
	line(slices.Repeat([]string{"---"}, len(g.Head)))
	for _, row := range g.Rows {
		line(row)
	}
	b.WriteString("\n")
	return b.String()
}

// Number formats a number with three significant digits.
func Number(n float64) string {
	switch size := math.Abs(n); {
	case size >= 100 || n == math.Trunc(n):
		return thousands(int64(math.Round(n)))
	case size >= 10:
		return fmt.Sprintf("%.1f", n)
	case size >= .1:
		return fmt.Sprintf("%.2f", n)
	}
	return fmt.Sprintf("%.2g", n)
}

func thousands(n int64) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return thousands(n/1000) + fmt.Sprintf(",%03d", n%1000)
}

// Spread formats a median with the lowest and the highest value: 2.81 (2.60–3.02).
func Spread(s measure.Spread) string {
	if s.Low == s.High {
		return Number(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", Number(s.Median), Number(s.Low), Number(s.High))
}
