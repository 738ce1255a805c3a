package console

import (
	"fmt"
	"strings"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/internal/pretty"
)

// chart is one picture of samples over time.
type chart struct {
	Title, Label, From, Top string
	Lines                   []line
}

type line struct {
	Name, Class, Now, Points string
}

// The size of a chart, in its own units.
const chartWidth, chartHeight = 600, 100

// charts returns the charts of rate, age and parked events. They have no lines if there are too few samples.
func charts(samples []desk.Sample) []chart {
	rate := func(of func(admin.Rates) float64) func(desk.Sample) (float64, bool) {
		return func(s desk.Sample) (float64, bool) {
			if s.Rates == nil {
				return 0, false
			}
			return of(*s.Rates), true
		}
	}
	return []chart{
		draw("Events a second", samples, perSecond,
			series{"enqueued", "one", rate(func(r admin.Rates) float64 { return r.Enqueued })},
			series{"sent", "two", rate(func(r admin.Rates) float64 { return r.Sent })}),
		draw("Oldest unpublished", samples, func(seconds float64) string { return span(time.Duration(seconds * float64(time.Second))) },
			series{"age", "one", func(s desk.Sample) (float64, bool) { return s.Stats.OldestUnpublished.Seconds(), true }}),
		draw("Parked", samples, func(n float64) string { return pretty.Thousands(int64(n)) },
			series{"parked", "one", func(s desk.Sample) (float64, bool) { return float64(s.Stats.Counts.Parked), true }}),
	}
}

// series is the data of a line. The function at returns the value of a sample, and false if it has none.
type series struct {
	name, class string
	at          func(desk.Sample) (float64, bool)
}

// draw draws samples, oldest first, from left to right.
func draw(title string, samples []desk.Sample, say func(float64) string, all ...series) chart {
	c := chart{Title: title}
	if len(samples) < 3 {
		return c
	}
	begin, end := samples[0].Stats.At, samples[len(samples)-1].Stats.At
	if !end.After(begin) {
		return c
	}
	top := 0.0
	for _, s := range all {
		for _, at := range samples {
			value, _ := s.at(at)
			top = max(top, value)
		}
	}
	var told []string
	for _, s := range all {
		var points strings.Builder
		now := 0.0
		for _, at := range samples {
			value, known := s.at(at)
			if !known {
				continue
			}
			x := chartWidth * float64(at.Stats.At.Sub(begin)) / float64(end.Sub(begin))
			y := float64(chartHeight - 3)
			if top > 0 {
				y -= (chartHeight - 6) * value / top
			}
			fmt.Fprintf(&points, "%.1f,%.1f ", x, y)
			now = value
		}
		c.Lines = append(c.Lines, line{s.name, s.class, say(now), strings.TrimSpace(points.String())})
		told = append(told, s.name+" "+say(now)+" now")
	}
	c.From, c.Top = span(end.Sub(begin).Round(time.Second))+" ago", say(top)
	c.Label = fmt.Sprintf("%s over %s: %s; at most %s", title, span(end.Sub(begin).Round(time.Second)), strings.Join(told, ", "), c.Top)
	return c
}
