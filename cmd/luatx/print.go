package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/outbox"
)

// printer prints rows as a table or, with --json, as one JSON object per line.
type printer struct {
	out     io.Writer
	encoder *json.Encoder // nil for a table
	table   *tabwriter.Writer
	headed  bool
	err     error
}

func newPrinter(out io.Writer, asJSON bool) *printer {
	p := &printer{out: out}
	if asJSON {
		p.encoder = json.NewEncoder(out)
		p.encoder.SetEscapeHTML(false)
		return p
	}
	p.table = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	return p
}

// row prints an object, or its cells under the names of the columns, which precede the first row.
func (p *printer) row(object any, columns string, cells ...any) {
	if p.encoder != nil {
		p.keep(p.encoder.Encode(object))
		return
	}
	if !p.headed {
		p.headed = true
		p.line(strings.ReplaceAll(columns, " ", "\t"))
	}
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = plain(fmt.Sprint(cell))
	}
	p.line(strings.Join(texts, "\t"))
}

// say prints text unless the output is JSON.
func (p *printer) say(format string, args ...any) {
	if p.encoder == nil {
		for i, arg := range args {
			if text, ok := arg.(string); ok {
				args[i] = plain(text)
			}
		}
		p.line(fmt.Sprintf(format, args...))
	}
}

func (p *printer) line(text string) {
	_, err := fmt.Fprintln(p.table, text)
	p.keep(err)
}

func (p *printer) keep(err error) {
	if p.err == nil {
		p.err = err
	}
}

// flush shows the rows so far. The next row begins another table.
func (p *printer) flush() error {
	if p.table != nil {
		p.keep(p.table.Flush())
	}
	return p.err
}

// section begins another table.
func (p *printer) section(title string) {
	p.keep(p.flush())
	p.headed = false
	if title != "" {
		p.say("\n%s", title)
	}
}

// plain replaces characters of a text from a server that would move the cursor or break the table.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, text)
}

// eventRow is the JSON of one event. The additional fields are only set for a single event.
type eventRow struct {
	acts.Event

	History []acts.Failure   `json:"history,omitempty"`
	Holder  string           `json:"holder,omitempty"`
	Body    *json.RawMessage `json:"body,omitempty"`
}

const eventColumns = "SLOT ID STATE AT ATTEMPTS DESTINATION TYPE CLASS ERROR"

func (p *printer) event(e outbox.Event) {
	row := acts.NewEvent(e)
	p.row(row, eventColumns, row.Slot, row.ID, row.State, when(row.At), row.Attempts, row.Destination, row.Type, row.Class, cut(row.Error))
}

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// cut shortens a long text for a table.
func cut(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
