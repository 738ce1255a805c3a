package otel_test

import (
	"fmt"
	"html"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/luatx/luatx/internal/test/redistest"
)

// TestTraceOfAnOrderHasAllSpans draws the trace of the tenth order of a run, because the first ones open connections and load
// scripts. With LUATX_TRACE_SVG, it writes the picture of docs/observability.md to that file.
func TestTraceOfAnOrderHasAllSpans(t *testing.T) {
	t.Parallel()
	s := openShop(t, redistest.Shared(t).Client(t))
	const warm = 9
	for i := range warm {
		s.order(t, fmt.Sprint("warm-", i), "tea")
		s.await(t, "process order-events", i+1)
	}
	s.spans.Reset()
	s.order(t, "7", "tea")
	s.await(t, "process order-events", 1)
	spans := s.spans.GetSpans()
	if len(spans) != 7 {
		t.Fatalf("%d spans, want 7", len(spans))
	}
	for i := range spans {
		spans[i].Name = strings.ReplaceAll(spans[i].Name, s.prefix+"-", "")
	}
	picture := draw(spans)
	for _, want := range []string{"POST /orders", "process order-events", `class="link"`, `class="parent"`} {
		if !strings.Contains(picture, want) {
			t.Errorf("the picture lacks %s", want)
		}
	}
	if file := os.Getenv("LUATX_TRACE_SVG"); file != "" {
		redistest.Must(t, os.WriteFile(file, []byte(picture), 0o644)) //nolint:gosec // a picture of the docs
	}
}

// The dimensions of the picture, in pixels.
const (
	left, width, right = 286, 612, 34 // of the time axis
	top, row, bar      = 58, 38, 18
)

const style = `
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.quiet { fill: #59636e; font-size: 12px }
.right { text-anchor: end }
.mid { text-anchor: middle }
.back { fill: #ffffff }
.band { fill: #f6f8fa }
.grid { stroke: #d1d9e0; stroke-width: 1 }
.producer { fill: #bf5600 }
.server { fill: #818b98 }
.consumer { fill: #0969da }
.client { fill: #1a7f37 }
.parent { stroke: #59636e; stroke-width: 1.5; fill: none; marker-end: url(#solid) }
.link { stroke: #8250df; stroke-width: 1.5; stroke-dasharray: 5 3; fill: none; marker-end: url(#dashed) }
.solid { fill: #59636e }
.dashed { fill: #8250df }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc }
.quiet { fill: #9198a1 }
.back { fill: #0d1117 }
.band { fill: #151b23 }
.grid { stroke: #3d444d }
.producer { fill: #f0883e }
.server { fill: #9198a1 }
.consumer { fill: #4493f8 }
.client { fill: #3fb950 }
.parent { stroke: #9198a1 }
.link { stroke: #ab7df8 }
.solid { fill: #9198a1 }
.dashed { fill: #ab7df8 }
}
`

// draw returns spans as bars on a time axis, ordered by their start, with arrows from parents and along links.
func draw(spans []tracetest.SpanStub) string {
	slices.SortFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	begin, end := spans[0].StartTime, spans[0].EndTime
	rows := make(map[trace.SpanID]int)
	for i, span := range spans {
		rows[span.SpanContext.SpanID()] = i
		if span.EndTime.After(end) {
			end = span.EndTime
		}
	}
	step := tick(end.Sub(begin))
	whole := end.Sub(begin).Truncate(step) + step
	at := func(when time.Time) float64 { return left + width*float64(when.Sub(begin))/float64(whole) }
	bottom := top + row*len(spans)

	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%d" role="img" aria-labelledby="title">`, left+width+right, bottom+58)
	say(`<title id="title">The trace of one order: %d spans in %s, joined by parents inside a service and by links across queue and outbox</title>`,
		len(spans), milliseconds(end.Sub(begin)))
	say(`<style>%s</style>`, style)
	for _, name := range []string{"solid", "dashed"} {
		say(`<marker id="%s" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="%[1]s" d="M0 0 8 4 0 8z"/></marker>`, name)
	}
	say(`<rect class="back" width="100%%" height="100%%"/>`)
	for i := range spans {
		if i%2 == 0 {
			say(`<rect class="band" x="0" y="%d" width="%d" height="%d"/>`, top+row*i, left+width+right, row)
		}
	}
	say(`<text class="quiet" x="14" y="%d">span</text><text class="quiet right" x="%d" y="%[1]d">duration</text>`, top-14, left-34)
	for d := time.Duration(0); d <= whole; d += step {
		x := at(begin.Add(d))
		say(`<path class="grid" d="M%.1f %dV%d"/><text class="quiet mid" x="%.1f" y="%d">%s</text>`, x, top-8, bottom, x, top-14, grid(d))
	}
	say(`<text x="14" y="24">One order: placed, handled, published, shipped</text>`)
	for i, span := range spans {
		y, from := float64(top+row*i), at(span.StartTime)
		indent := 14
		if span.Parent.IsValid() {
			indent = 30
		}
		say(`<text x="%d" y="%.1f">%s</text>`, indent, y+row/2+4.5, html.EscapeString(span.Name))
		say(`<text class="quiet right" x="%d" y="%.1f">%s</text>`, left-34, y+row/2+4.5, milliseconds(span.EndTime.Sub(span.StartTime)))
		say(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%d" rx="3"><title>%s, %s</title></rect>`, span.SpanKind, from,
			y+(row-bar)/2, max(4, at(span.EndTime)-from), bar, html.EscapeString(span.Name), span.SpanKind)
	}
	arrow := func(class string, source trace.SpanID, i int) {
		j, known := rows[source]
		if !known {
			return
		}
		into := at(spans[i].StartTime) + 2
		down := float64(top+row*i) + (row-bar)/2
		out := at(spans[j].EndTime)
		if out < into { // from its end and down
			say(`<path class="%s" d="M%.1f %.1fH%.1fV%.1f"/>`, class, out, float64(top+row*j)+row/2, into, down)
		} else {
			say(`<path class="%s" d="M%.1f %.1fV%.1f"/>`, class, into, float64(top+row*j)+(row+bar)/2, down)
		}
	}
	for i, span := range spans {
		if span.Parent.IsValid() {
			arrow("parent", span.Parent.SpanID(), i)
		}
		for _, link := range span.Links {
			arrow("link", link.SpanContext.SpanID(), i)
		}
	}
	x, y := 14, bottom+34
	for _, kind := range []string{"server", "producer", "consumer", "client"} {
		say(`<rect class="%s" x="%d" y="%d" width="14" height="14" rx="3"/><text class="quiet" x="%d" y="%d">%[1]s</text>`, kind, x, y-11, x+20, y)
		x += 98
	}
	say(`<path class="parent" d="M%d %dH%d"/><text class="quiet" x="%d" y="%d">parent to child</text>`, x+10, y-4, x+44, x+52, y)
	say(`<path class="link" d="M%d %dH%d"/><text class="quiet" x="%d" y="%d">link: from where its message was made</text>`, x+170, y-4, x+204, x+212, y)
	say(`</svg>`)
	return b.String()
}

// tick returns the distance of the grid lines, of which there are about six.
func tick(whole time.Duration) time.Duration {
	for step := 10 * time.Microsecond; ; step *= 10 {
		for _, d := range []time.Duration{step, 2 * step, 5 * step} {
			if whole/d <= 7 {
				return d
			}
		}
	}
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

// grid formats a time without trailing zeros.
func grid(d time.Duration) string { return fmt.Sprintf("%g ms", float64(d)/float64(time.Millisecond)) }
