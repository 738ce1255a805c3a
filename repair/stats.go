package repair

import (
	"maps"
	"sync"
	"time"

	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/shard"
)

// Stats counts what Fix and Run have done in this process. Dry runs do not count.
type Stats struct {
	// Rounds of Run came to their end; LastRound is when the last one did, and Took how long it took.
	Rounds    int64
	LastRound time.Time
	Took      time.Duration
	// Shards that hold anything were looked at to their end, in Steps scripts.
	Shards, Steps int64
	// Errors are scripts and pipelines that failed in Run; their shards wait for the next round.
	Errors int64
	// Fixed and Reported are the findings that were settled, and those that need a person, which every round counts
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

// report tells operators what the worker has done, and that it is working on a round.
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
