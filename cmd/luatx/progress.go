package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress shows the progress of long work in one line that is redrawn and removed at the end: a bar if the total is known,
// or else a count. It is only shown on a terminal.
type progress struct {
	out   io.Writer // nil if not shown
	what  string
	total int64 // 0 if unknown
	n     int64
	last  time.Time
	drawn bool
}

const (
	barCells   = 24
	redrawTime = 100 * time.Millisecond
)

// progress returns a progress with the given total, or 0 if that is unknown.
func (s *session) progress(what string, total int64) *progress {
	p := &progress{what: what, total: total}
	if terminal, _ := style(s.std.err); terminal && !s.json {
		p.out = s.std.err
	}
	return p
}

// add adds n to the count.
func (p *progress) add(n int) { p.set(p.n + int64(n)) }

// set sets the count.
func (p *progress) set(n int64) {
	p.n = n
	if p.out == nil || time.Since(p.last) < redrawTime {
		return
	}
	p.last, p.drawn = time.Now(), true
	fmt.Fprintf(p.out, "\r%s\x1b[K", p)
}

// String returns the current line.
func (p *progress) String() string {
	if p.total <= 0 {
		return fmt.Sprintf("%d %s", p.n, p.what)
	}
	done := min(p.n, p.total)
	cells := int(done * barCells / p.total)
	return fmt.Sprintf("[%s%s] %3d %% of %d %s", strings.Repeat("=", cells), strings.Repeat(" ", barCells-cells), done*100/p.total, p.total, p.what)
}

// end removes the line.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// countLines counts writes, one per line.
type countLines struct{ *progress }

// Write implements io.Writer.
func (c countLines) Write(b []byte) (int, error) {
	c.add(1)
	return len(b), nil
}

// countBytes counts the bytes that are read.
type countBytes struct {
	io.Reader
	*progress
}

// Read implements io.Reader.
func (c countBytes) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.add(n)
	return n, err
}
