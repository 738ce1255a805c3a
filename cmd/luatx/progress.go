package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress shows how far long work is, in one line that is written over and gone at the end: a bar where the whole is known,
// else a count. It is shown on a terminal alone.
type progress struct {
	out   io.Writer // nil: it is not shown
	what  string
	total int64 // 0: not known
	n     int64
	last  time.Time
	drawn bool
}

const (
	barCells   = 24
	redrawTime = 100 * time.Millisecond
)

// progress counts what is done, of so many unless that is 0.
func (s *session) progress(what string, total int64) *progress {
	p := &progress{what: what, total: total}
	if terminal, _ := style(s.std.err); terminal && !s.json {
		p.out = s.std.err
	}
	return p
}

// add counts.
func (p *progress) add(n int) { p.set(p.n + int64(n)) }

// set says how many are done.
func (p *progress) set(n int64) {
	p.n = n
	if p.out == nil || time.Since(p.last) < redrawTime {
		return
	}
	p.last, p.drawn = time.Now(), true
	fmt.Fprintf(p.out, "\r%s\x1b[K", p)
}

// String is the line as it is now.
func (p *progress) String() string {
	if p.total <= 0 {
		return fmt.Sprintf("%d %s", p.n, p.what)
	}
	done := min(p.n, p.total)
	cells := int(done * barCells / p.total)
	return fmt.Sprintf("[%s%s] %3d %% of %d %s", strings.Repeat("=", cells), strings.Repeat(" ", barCells-cells), done*100/p.total, p.total, p.what)
}

// end wipes the line.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// countLines counts what is written, a line each.
type countLines struct{ *progress }

// Write implements io.Writer.
func (c countLines) Write(b []byte) (int, error) {
	c.add(1)
	return len(b), nil
}

// countBytes counts what is read.
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
