package verdict

import (
	"maps"
	"slices"
	"strings"

	"github.com/luatx/luatx/torture/internal/ground"
	"github.com/luatx/luatx/torture/internal/work"
)

// published checks the events at the broker against the commits.
func (j *judge) published() {
	seen := make(map[string]bool)
	for _, p := range j.World.Published {
		j.Hold(LeaseOutlasts, p.LeftToPublish <= ground.Lease.Milliseconds(), "the publisher had %d ms for %s, longer than its lease", p.LeftToPublish, p.ID)
		if p.Due != 0 && !j.Taken[p.ID] {
			j.Hold(NotEarly, p.MS >= p.Due, "%s was published %d ms early", p.ID, p.Due-p.MS)
		}
		if p.Declared > 0 {
			j.Hold(BodiesWhole, p.Filling == p.Declared, "%s was published with %d of %d bytes", p.ID, p.Filling, p.Declared)
		}
		if seen[p.ID] {
			continue
		}
		seen[p.ID] = true
		if _, found := j.events[p.ID]; found {
			j.Hold(NoGhosts, true, "")
			continue
		}
		branch := j.origin(p)
		excused := branch >= 0 && j.excused(branch, p.At)
		j.Hold(NoGhosts, excused && !j.Barrier, "%s, a %s of %s, was published, but not committed", p.ID, p.Type, p.Of)
		if excused {
			j.losses.Ghosts++
		}
	}
	for id, c := range j.events {
		j.Hold(PublishedAll, seen[id], "event %s of %s in %s was not published", id, c.id, j.World.Branches[c.branch].Name)
	}
	for _, id := range j.World.Refused {
		if _, committed := j.events[id]; committed {
			j.Hold(ParkedKept, seen[id], "event %s was parked, and was not published later", id)
		}
	}
}

// origin returns the branch whose commit created an event, or a negative number if there is none.
func (j *judge) origin(p Publication) int {
	if c := j.Story.Calls[p.Of]; c != nil {
		return c.Branch
	}
	if h := j.byName[p.Subject]; h != nil {
		return h.N
	}
	return -1
}

// lanes checks that the events of a lane were published in the order of their commits, except for late repetitions, and
// that every number of a lane is used once.
func (j *judge) lanes() {
	type lane struct {
		branch int
		name   string
	}
	places, last, seen := make(map[lane][]int64), make(map[lane]int64), j.publishedBefore()
	for _, c := range j.events {
		if c.Lane != ground.NoLane {
			l := lane{c.branch, c.Lane}
			places[l] = append(places[l], c.N)
		}
	}
	for _, p := range j.World.Published {
		c, found := j.events[p.ID]
		if !found || c.Lane == ground.NoLane || seen[p.ID] {
			continue
		}
		seen[p.ID] = true
		l := lane{c.branch, c.Lane}
		j.Hold(LaneOrder, c.N > last[l], "event %s, number %d of lane %s in %s, was published after number %d",
			p.ID, c.N, c.Lane, j.World.Branches[c.branch].Name, last[l])
		last[l] = max(last[l], c.N)
	}
	for l, numbers := range places {
		slices.Sort(numbers)
		h := j.World.Branches[l.branch]
		for i, n := range numbers {
			j.Hold(LaneOrder, n == int64(i+1), "the event at place %d of lane %s in %s has number %d", i+1, l.name, h.Name, n)
		}
		j.Hold(LaneOrder, h.Lanes[l.name] == int64(len(numbers)), "the counter of lane %s in %s is %d, want %d", l.name, h.Name, h.Lanes[l.name], len(numbers))
	}
}

// publishedBefore returns the events that were published during a failover. Their commit may have been lost and repeated
// with another number in the lane.
func (j *judge) publishedBefore() map[string]bool {
	before := make(map[string]bool)
	for _, p := range j.World.Published {
		if c, found := j.events[p.ID]; found && j.excused(c.branch, p.At) {
			before[p.ID] = true
		}
	}
	return before
}

// arrivals checks that money sent by one branch arrived in the other, once. The event's id is the id of the input.
func (j *judge) arrivals() {
	at := make(map[string][]int64) // times of publication by event
	for _, p := range j.World.Published {
		if p.Type == work.SentType {
			at[p.ID] = append(at[p.ID], p.At)
		}
	}
	for id, c := range j.events {
		if c.Kind != ground.Send {
			continue
		}
		name, account, _ := strings.Cut(c.To, "/")
		h := j.byName[name]
		if h == nil {
			j.Hold(Arrives, false, "%s was sent to %q, which is not a branch", id, c.To)
			continue
		}
		got, arrived := h.Effects[id]
		if !arrived && slices.ContainsFunc(at[id], func(t int64) bool { return j.excused(h.N, t) }) {
			j.losses.Inputs++ // a failover has lost the entry of the stream
			continue
		}
		j.Hold(Arrives, arrived && got.Amount == c.Amount && got.To == account, "transfer of %d from %s to %s by event %s has the effect %+v", c.Amount, c.id, c.To, id, got)
	}
	for i := range j.World.Branches {
		h := &j.World.Branches[i]
		for id, e := range h.Effects {
			if e.Kind != ground.Credit {
				continue
			}
			if _, sent := j.events[id]; !sent && !j.ghost(id) {
				j.Hold(Arrives, false, "%d arrived in %s by event %s, but no branch sent it", e.Amount, h.Name, id)
			}
		}
	}
}

// ghost reports whether an event was published whose commit a failover has lost. published has counted it.
func (j *judge) ghost(id string) bool {
	return slices.ContainsFunc(j.World.Published, func(p Publication) bool {
		return p.ID == id && j.origin(p) >= 0 && j.excused(j.origin(p), p.At)
	})
}

// stable checks that all runs of a handler for one input would create the same event.
func (j *judge) stable() {
	for id, events := range j.Story.Events {
		j.Hold(StableEvents, len(events) == 1, "the handler runs for input %s create the events %v", id, slices.Sorted(maps.Keys(events)))
	}
}
