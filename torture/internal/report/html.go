package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

const (
	chartWidth  = 1200
	chartHeight = 160
	laneHeight  = 16
	labelWidth  = 150
)

// view is the report as the page shows it.
type view struct {
	*Report
	Width, Height, Bottom int
	Label                 int
	Line                  string // the points of the throughput
	Most                  int    // maximum number of commits per second
	Lanes                 []lane
	Marks                 []mark
}

// lane is the row of all faults of a kind.
type lane struct {
	Kind       string
	Y, Text    int
	Bars       []bar
	Recoveries Spread
}

type bar struct {
	X, Width, Recovery float64
	Failed             bool
	Title              string
}

// mark is a label on the time axis.
type mark struct {
	X    float64
	Text string
}

// HTML writes a self-contained page.
func (r *Report) HTML(w io.Writer) error { return page.Execute(w, r.view()) }

func (r *Report) view() view {
	v := view{Report: r, Width: chartWidth, Height: chartHeight, Label: labelWidth}
	total := max(1, r.Seconds*1000)
	x := func(ms float64) float64 {
		return labelWidth + min(max(ms, 0), total)/total*(chartWidth-labelWidth)
	}
	beats := perSecond(r.Timeline, r.EveryMS)
	for _, n := range beats {
		v.Most = max(v.Most, n)
	}
	var points []string
	for i, n := range beats {
		points = append(points, fmt.Sprintf("%.1f,%.1f", x(float64(i)*1000), chartHeight-float64(n)/float64(max(1, v.Most))*(chartHeight-10)))
	}
	v.Line = strings.Join(points, " ")
	for i, kind := range slices.Sorted(maps.Keys(r.Faults)) {
		l := lane{Kind: kind, Y: chartHeight + 20 + i*laneHeight, Recoveries: r.Recovery[kind]}
		l.Text = l.Y + laneHeight - 5
		for _, e := range r.Events {
			if e.Kind != kind {
				continue
			}
			from, to := x(float64(e.FromMS)), x(float64(e.ToMS))
			l.Bars = append(l.Bars, bar{
				X: from, Width: max(1.5, to-from), Recovery: x(float64(e.ToMS)+e.RecoveryMS) - to, Failed: e.Err != "",
				Title: fmt.Sprintf("%s %s at %.1f s for %.1f s, first commit after %.0f ms %s", e.Kind, e.Target,
					float64(e.FromMS)/1000, float64(e.ToMS-e.FromMS)/1000, e.RecoveryMS, e.Err),
			})
		}
		v.Lanes = append(v.Lanes, l)
	}
	v.Bottom = chartHeight + 40 + len(v.Lanes)*laneHeight
	for i := range 11 {
		v.Marks = append(v.Marks, mark{x(total * float64(i) / 10), fmt.Sprintf("%.0f s", total*float64(i)/10000)})
	}
	return v
}

// perSecond returns the sum of the timeline for each second.
func perSecond(timeline []int, everyMS int64) []int {
	var sums []int
	for i, n := range timeline {
		second := int(int64(i) * everyMS / 1000)
		for len(sums) <= second {
			sums = append(sums, 0)
		}
		sums[second] += n
	}
	return sums
}
