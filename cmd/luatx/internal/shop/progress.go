package shop

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/pretty"
)

// The shortest intervals between two updates of the progress.
const (
	redrawEvery = 100 * time.Millisecond
	printEvery  = 5 * time.Second
)

const barWidth = 26

// Progress shows the progress of a run: a bar that is redrawn on a terminal, or a line now and then elsewhere. It starts no
// goroutine. It ignores errors of the writer, because a run must not fail for its progress bar.
type Progress struct {
	out         io.Writer
	terminal    bool
	paint       func(code, text string) string
	label       string
	total       int
	done, kills int
	last        time.Time // time of the last draw
	printed     string    // the last line
}

// NewProgress returns a Progress up to a total, with a label. Set terminal if out understands escape sequences, and colour
// if it should also get colors.
func NewProgress(out io.Writer, terminal, colour bool, label string, total int) *Progress {
	return &Progress{out: out, terminal: terminal, paint: painter(colour), label: label, total: total}
}

// Set shows the number of finished messages and of killed workers. It may be called at any rate.
func (p *Progress) Set(done, kills int) {
	p.done, p.kills = done, kills
	every := printEvery
	if p.terminal {
		every = redrawEvery
	}
	if time.Since(p.last) >= every {
		p.last = time.Now()
		p.draw(false)
	}
}

// Finish shows the last state and ends the line.
func (p *Progress) Finish() {
	p.draw(true)
	if p.terminal {
		fmt.Fprintln(p.out)
	}
}

// draw writes the state. An ellipsis shows that events of the last message are still on their way.
func (p *Progress) draw(final bool) {
	share := 1.0
	if p.total > 0 {
		share = min(max(float64(p.done)/float64(p.total), 0), 1)
	}
	text := fmt.Sprintf("%3d%%  %s of %s  %s", int(share*100), pretty.Thousands(p.done), pretty.Thousands(p.total), amount(int64(p.kills), "kill"))
	if share == 1 && !final {
		text += " …"
	}
	if !p.terminal {
		if text != p.printed {
			fmt.Fprintf(p.out, "%s: %s\n", p.label, text)
		}
		p.printed = text
		return
	}
	full := int(share * barWidth)
	bar := p.paint(green, strings.Repeat("█", full)) + strings.Repeat("░", barWidth-full)
	fmt.Fprintf(p.out, "\r\x1b[K%-9s %s %s", p.label, bar, text)
}
