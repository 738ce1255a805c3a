package verdict

import (
	"fmt"
	"slices"
	"strings"

	"github.com/luatx/luatx/torture/internal/ground"
	"github.com/luatx/luatx/torture/internal/history"
	"github.com/luatx/luatx/torture/internal/nemesis"
)

// Evidence is everything that a run has left behind.
type Evidence struct {
	World   *World
	Story   *Story
	Outages []nemesis.Outage
	// Repeats are the times at which the network repeated requests. Callers do not know of a repeated request, and it may
	// succeed after the first one was rejected.
	Repeats []Span
	Taken   map[string]bool // events removed from their index, and so due at once
	Barrier bool            // nothing may be published before replicas have it
	Samples []Sample        // of positions, in the order of their times
}

// Span is an interval, in nanoseconds.
type Span struct{ From, To int64 }

// Losses counts what failovers have lost: acknowledged commits, acknowledged inputs, and the commits of published events.
type Losses struct {
	Commits int `json:"commits"`
	Inputs  int `json:"inputs"`
	Ghosts  int `json:"ghosts"`
}

// judge is one evaluation of the evidence.
type judge struct {
	Evidence
	*Checks
	losses Losses

	byName map[string]*Holding
	events map[string]committed // by id
}

// committed is an effect with its branch.
type committed struct {
	ground.Effect
	id     string
	branch int
}

// Judge checks the invariants against the evidence.
func Judge(e Evidence, checks *Checks) Losses {
	j := &judge{Evidence: e, Checks: checks, byName: map[string]*Holding{}, events: map[string]committed{}}
	for i := range e.World.Branches {
		h := &e.World.Branches[i]
		j.byName[h.Name] = h
		for id, effect := range h.Effects {
			j.events[effect.Event] = committed{effect, id, h.N}
		}
	}
	for i := range e.World.Branches {
		j.branch(&e.World.Branches[i])
	}
	j.calls()
	j.inputs()
	j.steps()
	j.published()
	j.lanes()
	j.arrivals()
	j.stable()
	return j.losses
}

// excused reports whether a failover may have lost what a branch acknowledged at a time.
func (j *judge) excused(branch int, at int64) bool {
	return slices.ContainsFunc(j.Outages, func(o nemesis.Outage) bool { return o.Meets(branch, at, at) })
}

// excusedCall reports whether a failover may have lost the effect of a call at any time during the call. In a batch, all
// calls return together.
func (j *judge) excusedCall(line history.Line) bool {
	return slices.ContainsFunc(j.Outages, func(o nemesis.Outage) bool { return o.Meets(line.Branch, line.Start, line.End) })
}

// branch checks one branch on its own: its effects must explain its whole state.
func (j *judge) branch(h *Holding) {
	balances, sums, stock := make(map[string]int64), map[string]int64{"count": int64(len(h.Effects))}, make(map[string]int64)
	for n := range ground.Accounts {
		balances[ground.Account(n)] = ground.Opening
	}
	for id, e := range h.Effects {
		j.Hold(AppliedOnce, h.Times[id] == 1, "%s in %s was applied %d times", id, h.Name, h.Times[id])
		switch e.Kind {
		case ground.Move:
			balances[e.From] -= e.Amount
			balances[e.To] += e.Amount
		case ground.Send:
			balances[e.From] -= e.Amount
			sums["out"] += e.Amount
		case ground.Credit:
			balances[e.To] += e.Amount
			sums["in"] += e.Amount
		case ground.Order:
			stock[e.From] -= e.Amount
		}
		j.Hold(OutboxSet, h.Entries[e.Event] == ground.IsRemembered(e.Event), "the outbox of %s has event %s of %s: %t", h.Name, e.Event, id, h.Entries[e.Event])
	}
	for id := range h.Entries {
		_, found := j.events[id]
		j.Hold(OutboxSet, found, "the outbox of %s has an event %s of no commit", h.Name, id)
	}
	for account, held := range h.Balances {
		j.Hold(Money, held == balances[account], "%s of %s holds %d, and its effects say %d", account, h.Name, held, balances[account])
		j.Hold(NoDebt, held >= 0, "%s of %s holds %d", account, h.Name, held)
	}
	for name, sum := range sums {
		j.Hold(Money, h.Sums[name] == sum, "%s of %s is %d, and its effects say %d", name, h.Name, h.Sums[name], sum)
	}
	for product, left := range h.Stock {
		j.Hold(AppliedOnce, left == stock[product], "the stock of %s in %s is %d, and its effects say %d", product, h.Name, left, stock[product])
	}
	j.Hold(ErrorsNothing, h.Doomed == "", "transactions that failed have changed %s: %s", h.Name, h.Doomed)
	j.Hold(BodiesKept, h.Bodies == "", "in %s: %s", h.Name, h.Bodies)
	for id, n := range h.Times {
		_, found := h.Effects[id]
		j.Hold(AppliedOnce, found, "%s in %s is counted %d times and has no effect", id, h.Name, n)
	}
	// There is no inbox here. The consumer that reads an entry must apply it, and no other consumer may.
	j.entries(FencedOnce, "tick", h, h.Ticks, h.Ticked)
	j.entries(TriggeredOnce, "signal", h, h.Signals, h.Signalled)
}

// entries checks that each entry of a stream had its effect once.
func (j *judge) entries(invariant, what string, h *Holding, ids []string, applied map[string]int64) {
	there := make(map[string]bool, len(ids))
	for _, id := range ids {
		there[id] = true
		j.Hold(invariant, applied[id] == 1, "%s %s of %s was applied %d times", what, id, h.Name, applied[id])
	}
	for id, n := range applied {
		if !there[id] { // the new master may lack the entry but not have its effect without it
			j.Hold(invariant, false, "%s %s of %s was applied %d times and is not there", what, id, h.Name, n)
		}
	}
}

// calls checks the results of calls against the effects.
func (j *judge) calls() {
	for id, c := range j.Story.Calls {
		j.retries(c)
		if c.Cell != 0 {
			continue // the check for linearizability covers it
		}
		_, there := j.World.Branches[c.Branch].Effects[id]
		try, acked := c.acked()
		switch {
		case c.Op == history.Doomed:
			j.Hold(ErrorsNothing, !acked && !there, "%s must fail, but returned %s", id, results(c))
		case acked && !there:
			excused := j.excusedCall(try)
			j.Hold(AckedApplied, excused, "%s returned %s, but is not applied", id, results(c))
			j.Hold(Replicated, !c.replicated(), "%s is not applied, although replicas acknowledged it", id)
			if excused {
				j.losses.Commits++
			}
		case acked:
			j.Hold(AckedApplied, true, "")
			if c.replicated() {
				j.Hold(Replicated, true, "")
			}
		case !c.open() && !j.repeated(c):
			j.Hold(ErrorsNothing, !there, "%s returned %s, but is applied", id, results(c))
		}
	}
}

// repeated reports whether the network repeated requests during one of the tries.
func (j *judge) repeated(c *Call) bool {
	return slices.ContainsFunc(c.Tries, func(try history.Line) bool {
		return slices.ContainsFunc(j.Repeats, func(s Span) bool { return try.Start <= s.To && try.End >= s.From })
	})
}

func (c *Call) replicated() bool {
	return slices.ContainsFunc(c.Tries, func(try history.Line) bool { return try.Outcome.In() && try.Replicated })
}

// results returns the results of the tries of a call.
func results(c *Call) string {
	var words []string
	for _, try := range c.Tries {
		words = append(words, strings.TrimSpace(fmt.Sprintf("%s %s", try.Outcome, try.Err)))
	}
	return strings.Join(words, ", then ")
}

// retries checks that a call has one first result, and that repeated calls return that result.
func (j *judge) retries(c *Call) {
	firsts, value := 0, ""
	for _, try := range c.Tries {
		if !try.Outcome.In() {
			continue
		}
		if try.Outcome == history.Committed {
			firsts++
		}
		if try.Value == "" {
			continue
		}
		if value != "" {
			j.Hold(FirstResult, value == try.Value || j.lostBetween(c), "%s returned %s and then %s", c.ID, value, try.Value)
		}
		value = try.Value
	}
	if firsts > 0 {
		j.Hold(FirstResult, firsts == 1 || j.lostBetween(c), "%s was committed %d times: %s", c.ID, firsts, results(c))
	}
}

// lostBetween reports whether a failover may have lost the call's effect between two of its tries.
func (j *judge) lostBetween(c *Call) bool {
	return slices.ContainsFunc(c.Tries, func(try history.Line) bool { return try.Outcome.In() && j.excusedCall(try) })
}

// lostInput reports whether a failover may have lost an input from its stream. A consumer that had read it before may still
// apply it.
func (j *judge) lostInput(id string, h *Holding) bool {
	put, written := j.Story.Puts[id]
	return written && j.excusedCall(put) ||
		slices.ContainsFunc(j.World.Published, func(p Publication) bool { return p.ID == id && j.excused(h.N, p.At) })
}

// inputs checks that every order in a stream was applied, and that the streams contain all inputs acknowledged to a
// producer.
func (j *judge) inputs() {
	in := make(map[string]bool)
	for i := range j.World.Branches {
		h := &j.World.Branches[i]
		for _, id := range h.Orders {
			in[id] = true
			_, applied := h.Effects[id]
			j.Hold(AckedApplied, applied, "input %s of %s was not applied", id, h.Name)
		}
		for id, e := range h.Effects {
			if e.Kind == ground.Order || e.Kind == ground.Credit {
				j.Hold(AppliedOnce, in[id] || j.lostInput(id, h), "%s of %s was applied, but is not an input", id, h.Name)
			}
		}
	}
	for _, put := range j.Story.Puts {
		if put.Outcome != history.Committed || in[put.ID] {
			continue
		}
		excused := j.excusedCall(put)
		j.Hold(AckedApplied, excused, "the write of input %s was acknowledged, but the stream does not contain it", put.ID)
		if excused {
			j.losses.Inputs++
		}
	}
}
