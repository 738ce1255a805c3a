package console

import (
	"fmt"
	"strings"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/internal/pretty"
)

// chart is one picture of a history.
type chart struct {
	Title, Label, From, To, Top string
	Lines                       []line
}

// line is a path of a chart. Now is its last value.
type line struct {
	Name, Class, Now, Path string
}

// The size of a chart, in its own units.
const chartWidth, chartHeight = 600, 100

// chartGap is the longest time without a value that a line spans: a large keyspace is measured once a minute.
const chartGap = 90 * time.Second

// series is a line before it is drawn. It returns false for an interval without a value.
type series struct {
	name, class string
	value       func(admin.HistoryInterval) (float64, bool)
}

// counted returns a series of events per second.
func counted(name, class string, of func(admin.Outcomes) int64) series {
	return series{name, class, func(i admin.HistoryInterval) (float64, bool) {
		return float64(of(i.Outcomes)) / i.Duration.Seconds(), i.Duration > 0
	}}
}

// measured returns a series of measurements.
func measured(name, class string, of func(admin.Measured) float64) series {
	return series{name, class, func(i admin.HistoryInterval) (float64, bool) {
		if i.Measured == nil {
			return 0, false
		}
		return of(*i.Measured), true
	}}
}

// charts returns the charts of the overview: rate, age and parked events.
func charts(h admin.History, to string) []chart {
	return []chart{
		draw("Events per second", h, to, perSecond,
			measured("enqueued", "one", func(m admin.Measured) float64 { return m.Enqueued }),
			counted("sent", "two", func(o admin.Outcomes) int64 { return o.Sent })),
		draw("Oldest unpublished", h, to, func(seconds float64) string { return span(time.Duration(seconds * float64(time.Second))) },
			measured("age", "one", func(m admin.Measured) float64 { return m.Oldest.Seconds() })),
		draw("Parked", h, to, thousands,
			measured("parked", "one", func(m admin.Measured) float64 { return float64(m.Parked) }),
			measured("held back", "two", func(m admin.Measured) float64 { return float64(m.Blocked) })),
	}
}

// moreCharts returns the other charts of the history.
func moreCharts(h admin.History, to string) []chart {
	return []chart{
		draw("Not sent per second", h, to, perSecond,
			counted("failed or parked", "one", func(o admin.Outcomes) int64 { return o.Failed + o.Parked }),
			counted("returned", "two", func(o admin.Outcomes) int64 { return o.Returned })),
		draw("Outbox", h, to, thousands,
			measured("events", "one", func(m admin.Measured) float64 { return float64(m.Events) })),
		draw("Bytes in the outbox", h, to, func(n float64) string { return size(int64(n)) },
			measured("bytes", "one", func(m admin.Measured) float64 { return float64(m.Bytes) })),
	}
}

func thousands(n float64) string { return pretty.Thousands(int64(n)) }

// draw draws a history, oldest interval on the left. A chart has no lines if the history has fewer than three intervals.
func draw(title string, h admin.History, to string, format func(float64) string, all ...series) chart {
	c := chart{Title: title}
	whole := h.Until.Sub(h.Since)
	if len(h.Intervals) < 3 || whole <= 0 {
		return c
	}
	top := 0.0
	for _, s := range all {
		for _, i := range h.Intervals {
			value, _ := s.value(i)
			top = max(top, value)
		}
	}
	var values []string
	for _, s := range all {
		path, last := s.path(h, top)
		c.Lines = append(c.Lines, line{s.name, s.class, format(last), path})
		values = append(values, s.name+" "+format(last)+" at the end")
	}
	c.From, c.To, c.Top = span(whole.Round(time.Minute))+" earlier", to, format(top)
	c.Label = fmt.Sprintf("%s over %s: %s; maximum %s", title, span(whole.Round(time.Minute)), strings.Join(values, ", "), c.Top)
	return c
}

// path returns the line of a series as an SVG path, and its last value. Where values are missing, the path has a gap.
func (s series) path(h admin.History, top float64) (path string, last float64) {
	var b strings.Builder
	var before time.Time
	for _, i := range h.Intervals {
		value, known := s.value(i)
		if !known {
			continue
		}
		at := i.At.Add(i.Duration)
		x := chartWidth * float64(at.Sub(h.Since)) / float64(h.Until.Sub(h.Since))
		y := float64(chartHeight - 3)
		if top > 0 {
			y -= (chartHeight - 6) * value / top
		}
		if before.IsZero() || at.Sub(before) > max(h.Step*3/2, chartGap) {
			fmt.Fprintf(&b, "M%.1f %.1fh.1", x, y) // a lone value is a dot
		} else {
			fmt.Fprintf(&b, "L%.1f %.1f", x, y)
		}
		before, last = at, value
	}
	return b.String(), last
}
