package work

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"
)

// Note is a line that a process writes to its standard output every 100 ms.
type Note struct {
	// Commits holds the commits of the branches since the last note.
	Commits []Count `json:"c"`
}

// Count is the number of commits of one branch, and when the first and last were acknowledged, in nanoseconds of the
// machine's clock.
type Count struct {
	N     int   `json:"n"`
	First int64 `json:"f,omitempty"`
	Last  int64 `json:"l,omitempty"`
}

const noteEvery = 100 * time.Millisecond

// notes collects the notes of a process for its parent.
type notes struct {
	out *json.Encoder
	now func() int64

	mu     sync.Mutex
	counts []Count
}

func newNotes(out io.Writer, branches int, now func() int64) *notes {
	return &notes{out: json.NewEncoder(out), now: now, counts: make([]Count, branches)}
}

// committed counts an acknowledged commit.
func (n *notes) committed(branch int) {
	now := n.now()
	n.mu.Lock()
	defer n.mu.Unlock()
	c := &n.counts[branch]
	if c.N == 0 {
		c.First = now
	}
	c.N++
	c.Last = now
}

// run writes notes until ctx ends. It ignores errors, because the process ends when its parent does.
func (n *notes) run(ctx context.Context) {
	ticker := time.NewTicker(noteEvery)
	defer ticker.Stop()
	for {
		n.mu.Lock()
		counts := n.counts
		n.counts = make([]Count, len(counts))
		n.mu.Unlock()
		_ = n.out.Encode(Note{counts})
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
