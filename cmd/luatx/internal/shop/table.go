package shop

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/luatx/luatx/internal/pretty"
)

// Terminal colors.
const (
	red   = "\x1b[31m"
	green = "\x1b[32m"
	bold  = "\x1b[1m"
	plain = "\x1b[0m"
)

// row is one line of the table.
type row struct {
	name string
	cell func(Result) string
	bad  func(Result) bool // nil if never
}

func rows(e Expected) []row {
	count := func(name string, n func(Result) int64) row {
		return row{name, func(r Result) string { return pretty.Thousands(n(r)) }, func(r Result) bool { return n(r) != 0 }}
	}
	return []row{
		{"messages", func(r Result) string { return pretty.Thousands(r.Messages) }, nil},
		{"applied", func(r Result) string { return pretty.Thousands(r.Applied) }, func(r Result) bool { return r.Applied != e.Messages }},
		count("lost", func(r Result) int64 { return int64(r.Lost) }),
		count("applied twice", func(r Result) int64 { return int64(r.Doubled) }),
		count("events lost", func(r Result) int64 { return int64(r.EventsLost) }),
		{"money off", func(r Result) string { return pounds(r.MoneyOffPence) }, func(r Result) bool { return r.MoneyOffPence != 0 }},
		count("stock off", func(r Result) int64 { return r.StockOff }),
		{"workers killed", func(r Result) string { return pretty.Thousands(r.Kills) }, nil},
		{"per second", func(r Result) string { return pretty.Thousands(int64(r.PerSecond + 0.5)) }, nil},
		{"p50", func(r Result) string { return fmt.Sprintf("%.2f ms", r.P50Ms) }, nil},
		{"p99", func(r Result) string { return fmt.Sprintf("%.2f ms", r.P99Ms) }, nil},
	}
}

// WriteTable writes the modes side by side with a verdict on each, within 80 columns. Set colour for terminals.
func (r Report) WriteTable(w io.Writer, colour bool) error {
	paint := painter(colour)
	var names []string
	var results []Result
	if r.Pipeline != nil {
		names, results = append(names, "pipeline"), append(results, *r.Pipeline)
	}
	if r.Scripted != nil {
		names, results = append(names, "scripted"), append(results, *r.Scripted)
	}

	var b strings.Builder
	fmt.Fprintf(&b, "%-16s", "")
	for _, name := range names {
		b.WriteString(paint(bold, fmt.Sprintf("%20s", name)))
	}
	b.WriteByte('\n')
	for _, row := range rows(r.Expected) {
		fmt.Fprintf(&b, "%-16s", row.name)
		for _, result := range results {
			b.WriteString(paint(row.colour(result), fmt.Sprintf("%20s", row.cell(result))))
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	for i, result := range results {
		colour := red
		if r.Expected.Exact(result) {
			colour = green
		}
		verdict := wrap(names[i]+" mode: "+r.Expected.Verdict(result), 78)
		b.WriteString(paint(colour, verdict) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r row) colour(result Result) string {
	switch {
	case r.bad == nil:
		return ""
	case r.bad(result):
		return red
	}
	return green
}

// painter returns a function that colors a text if colour is set.
func painter(colour bool) func(code, text string) string {
	return func(code, text string) string {
		if !colour || code == "" {
			return text
		}
		return code + text + plain
	}
}

// Verdict describes the result of a run in a sentence.
func (e Expected) Verdict(r Result) string {
	if e.Exact(r) {
		return fmt.Sprintf("books exact, %s applied once each.", amount(int64(e.Messages), "invoice"))
	}
	var parts []string
	if r.Lost > 0 {
		parts = append(parts, fmt.Sprintf("lost %s of %s", pretty.Thousands(r.Lost), amount(int64(e.Messages), "invoice")))
	}
	if r.Doubled > 0 {
		parts = append(parts, fmt.Sprintf("applied %s twice", pretty.Thousands(r.Doubled)))
	}
	if r.EventsLost > 0 {
		parts = append(parts, fmt.Sprintf("lost %s", amount(int64(r.EventsLost), "event")))
	}
	if r.MoneyOffPence != 0 {
		parts = append(parts, "money off by "+pounds(r.MoneyOffPence))
	}
	if r.StockOff != 0 {
		parts = append(parts, "stock off by "+amount(r.StockOff, "unit"))
	}
	if len(parts) == 0 {
		return "the books differ from the orders."
	}
	return strings.Join(parts, ", ") + "."
}

// wrap breaks a text into lines of the given width, and indents all but the first.
func wrap(text string, width int) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		length := utf8.RuneCountInString(word)
		switch {
		case column == 0:
		case column+1+length > width:
			b.WriteString("\n  ")
			column = 2
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += length
	}
	return b.String()
}

func pounds(pence int64) string {
	whole, decimals, _ := strings.Cut(Pence(pence).String(), ".")
	whole, negative := strings.CutPrefix(whole, "-")
	text := "£" + pretty.Thousands(whole) + "." + decimals
	if negative {
		return "-" + text
	}
	return text
}

func amount(n int64, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return pretty.Thousands(n) + " " + unit + "s"
}
