// Package verdict holds what a run left behind against what is promised.
package verdict

import (
	"fmt"
	"slices"
	"sync"
)

// Check is one invariant: how many things it was held against, and what broke it.
type Check struct {
	Name     string   `json:"-"`
	OK       bool     `json:"ok"`
	Checked  int      `json:"checked"`
	Failed   int      `json:"failed,omitempty"`
	Problems []string `json:"problems,omitempty"` // the first that were found
	Note     string   `json:"note,omitempty"`     // explains the numbers
}

// shown is how many problems of an invariant are kept.
const shown = 8

// Checks are the invariants of a run. They are safe for concurrent use.
type Checks struct {
	mu   sync.Mutex
	list []*Check
}

// List returns the invariants, in the order in which they were first held.
func (c *Checks) List() []Check {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []Check
	for _, check := range c.list {
		list = append(list, *check)
	}
	return list
}

// OK says whether all hold.
func (c *Checks) OK() bool {
	return !slices.ContainsFunc(c.List(), func(check Check) bool { return !check.OK })
}

func (c *Checks) of(name string) *Check {
	i := slices.IndexFunc(c.list, func(check *Check) bool { return check.Name == name })
	if i < 0 {
		c.list = append(c.list, &Check{Name: name, OK: true})
		i = len(c.list) - 1
	}
	return c.list[i]
}

// Hold counts one thing that an invariant was held against; what is a problem where that is not so.
func (c *Checks) Hold(name string, holds bool, what string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	check := c.of(name)
	check.Checked++
	if holds {
		return
	}
	check.OK = false
	check.Failed++
	if len(check.Problems) < shown {
		check.Problems = append(check.Problems, fmt.Sprintf(what, args...))
	}
}

// Note adds a remark.
func (c *Checks) Note(name, what string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(name).Note = fmt.Sprintf(what, args...)
}

// The invariants.
const (
	AppliedOnce     = "each input is applied at most once"
	AckedApplied    = "what was acknowledged is applied"
	ErrorsNothing   = "what failed left nothing"
	FirstResult     = "a retry is told the first result"
	Replicated      = "what replicas had is not lost"
	Money           = "money is constant"
	NoDebt          = "no balance is negative"
	Arrives         = "what was sent arrives"
	OutboxSet       = "the outbox is what was committed"
	PublishedAll    = "what was committed is published"
	NoGhosts        = "nothing else is published"
	LaneOrder       = "lanes keep their order"
	NotEarly        = "scheduled events are not early"
	StableEvents    = "a second run makes the same event"
	StatesAddUp     = "states add up"
	ParkedKept      = "parked events never vanish"
	StaleNothing    = "a stale lease changes nothing"
	FencedOnce      = "a stale consumer changes nothing"
	TriggeredOnce   = "what a trigger reads has its effect once"
	SteppedOnce     = "what a position covers has its effect once, in order"
	StumbledOnce    = "what a position passes is a dead letter once"
	NeverBack       = "a position never goes back"
	LeaseOutlasts   = "a publish ends before its lease"
	Linearizable    = "sampled windows are linearizable"
	Recovers        = "work goes on after every fault"
	Drains          = "everything is drained after the last fault"
	ProcessesLast   = "no process ends by itself"
	FaultsInflicted = "faults were inflicted as meant"
)
