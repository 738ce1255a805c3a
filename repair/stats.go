package repair

import (
	"maps"
	"sync"
	"time"

	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/shard"
)

// Stats counts the work of Fix and Run in this process. Dry runs do not count.
type Stats struct {
	// Rounds is the number of complete rounds of Run, LastRound the time of the last one, and Took its duration.
	Rounds    int64
	LastRound time.Time
	Took      time.Duration
	// Shards is the number of complete checks of non-empty shards, and Steps the number of their scripts.
	Shards, Steps int64
	// Errors is the number of scripts and pipelines of Run that failed. Their shards wait for the next round.
	Errors int64
	// Fixed is the number of repaired findings, and Reported that of findings for an operator. Every round counts the latter
	// again.
	Fixed, Reported map[Kind]int64
}

// Stats returns the counters.
func (w *Worker) Stats() Stats {
	w.stats.mu.Lock()
	defer w.stats.mu.Unlock()
	s := w.stats.s
	s.Fixed, s.Reported = maps.Clone(s.Fixed), maps.Clone(s.Reported)
	return s
}

type stats struct {
	mu sync.Mutex
	s  Stats
}

func (c *stats) step(found []shard.RepairFinding, done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Steps++
	if done {
		c.s.Shards++
	}
	if len(found) > 0 && c.s.Fixed == nil {
		c.s.Fixed, c.s.Reported = make(map[Kind]int64), make(map[Kind]int64)
	}
	for _, f := range found {
		if f.Fixed {
			c.s.Fixed[Kind(f.Kind)]++
		} else {
			c.s.Reported[Kind(f.Kind)]++
		}
	}
}

func (c *stats) failed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Errors++
}

func (c *stats) round(began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Rounds++
	c.s.LastRound, c.s.Took = time.Now(), time.Since(began)
}

// report publishes the counts, and that the worker is making a round.
func (w *Worker) report() process.Report {
	s := w.Stats()
	r := process.Report{Counts: map[string]int64{"rounds": s.Rounds, "errors": s.Errors}}
	for _, n := range s.Fixed {
		r.Counts["fixed"] += n
	}
	for _, n := range s.Reported {
		r.Counts["reported"] += n
	}
	if w.mine.Load() {
		r.InFlight = 1
	}
	return r
}
