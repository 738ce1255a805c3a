package relay

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/shard"
)

// report returns the relay's leases and counts for operators.
func (r *Relay) report() process.Report {
	return process.Report{InFlight: r.inFlight.Load(), Leases: r.claims.list(time.Now()), Counts: r.counts.all()}
}

// counts holds the number of events by their fate.
type counts struct{ sent, failed, returned, parked, lost atomic.Int64 }

func (c *counts) note(done []string) {
	for _, what := range done {
		switch what {
		case settle.Sent:
			c.sent.Add(1)
		case settle.Retry:
			c.failed.Add(1)
		case settle.GiveBack:
			c.returned.Add(1)
		case settle.Park:
			c.parked.Add(1)
		default:
			c.lost.Add(1)
		}
	}
}

// record counts settled events for the history.
func (r *Relay) record(batch []shard.Settlement, done []string) {
	if !r.inside.History.On() {
		return
	}
	for i, what := range done {
		r.counter.Add(batch[i].Destination, settle.Fate(what), batch[i].Class)
	}
}

func (c *counts) all() map[string]int64 {
	return map[string]int64{
		"sent": c.sent.Load(), "failed": c.failed.Load(), "returned": c.returned.Load(), "parked": c.parked.Load(), "lost": c.lost.Load(),
	}
}

// claims holds the leases of the relay.
type claims struct {
	mu   sync.Mutex
	open map[claimed]*holding
}

// claimed identifies a lease.
type claimed struct {
	slot  int
	lease string
}

// holding is a lease with the number of events that are not settled yet.
type holding struct {
	events       int
	since, until time.Time
}

// add records the events of a new lease.
func (c *claims) add(slot int, lease string, events int, long time.Duration) {
	if events == 0 {
		return
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[claimed]*holding{}
	}
	c.open[claimed{slot, lease}] = &holding{events, now, now.Add(long)}
}

// end records that one event no longer belongs to its lease.
func (c *claims) end(slot int, lease string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := claimed{slot, lease}
	if h := c.open[key]; h != nil {
		if h.events--; h.events == 0 {
			delete(c.open, key)
		}
	}
}

// settled records the events that a shard has settled.
func (c *claims) settled(slot int, batch []shard.Settlement) {
	for i := range batch {
		if batch[i].Lease != "" {
			c.end(slot, batch[i].Lease)
		}
	}
}

// list returns the oldest leases. It forgets leases that have ended.
func (c *claims) list(now time.Time) []process.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []process.Lease
	for key, h := range c.open {
		if now.After(h.until) {
			delete(c.open, key)
			continue
		}
		all = append(all, process.Lease{Slot: key.slot, Lease: key.lease, Events: h.events, Since: h.since})
	}
	slices.SortFunc(all, func(a, b process.Lease) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Slot, b.Slot)) })
	return all[:min(len(all), process.MaxLeases)]
}
