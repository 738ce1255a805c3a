// Package pulse records when commits were acknowledged, for each branch.
package pulse

import (
	"slices"
	"sync"
	"time"

	"github.com/luatx/luatx/torture/internal/work"
)

// Every is the resolution.
const Every = 100 * time.Millisecond

// Pulse collects the notes of all processes. It is safe for concurrent use.
type Pulse struct {
	start time.Time

	mu    sync.Mutex
	beats [][]int   // number of commits by time and branch
	last  []int64   // time of the last acknowledged commit by branch
	waits []waiting // for the next commit
}

type waiting struct {
	branches []int
	after    int64
	first    chan int64
}

// New returns an empty Pulse that starts at the given time.
func New(start time.Time, branches int) *Pulse {
	return &Pulse{start: start, last: make([]int64, branches)}
}

// Add adds a note.
func (p *Pulse) Add(n work.Note) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for b, c := range n.Commits {
		if c.N == 0 || b >= len(p.last) {
			continue
		}
		at := int(time.Unix(0, c.Last).Sub(p.start) / Every)
		for len(p.beats) <= max(at, 0) {
			p.beats = append(p.beats, make([]int, len(p.last)))
		}
		p.beats[max(at, 0)][b] += c.N
		p.last[b] = max(p.last[b], c.Last)
		p.wake(b, c)
	}
}

func (p *Pulse) wake(branch int, c work.Count) {
	p.waits = slices.DeleteFunc(p.waits, func(w waiting) bool {
		if !slices.Contains(w.branches, branch) || c.Last < w.after {
			return false
		}
		at := c.First
		if at < w.after {
			at = c.Last
		}
		w.first <- at
		return true
	})
}

// Next returns a channel that receives the time, in nanoseconds, of the first commit that one of the branches acknowledges
// after the given time.
func (p *Pulse) Next(branches []int, after time.Time) <-chan int64 {
	w := waiting{branches, after.UnixNano(), make(chan int64, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = append(p.waits, w)
	return w.first
}

// Beats returns the number of commits so far in all branches, for each interval of Every.
func (p *Pulse) Beats() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	sums := make([]int, len(p.beats))
	for i, beat := range p.beats {
		for _, n := range beat {
			sums[i] += n
		}
	}
	return sums
}
