// Package verdict checks the state after a run against the promised invariants.
package verdict

import (
	"fmt"
	"slices"
	"sync"
)

// Check is one invariant, with the number of checks and the violations.
type Check struct {
	Name     string   `json:"-"`
	OK       bool     `json:"ok"`
	Checked  int      `json:"checked"`
	Failed   int      `json:"failed,omitempty"`
	Problems []string `json:"problems,omitempty"` // the first violations
	Note     string   `json:"note,omitempty"`     // explains the numbers
}

// shown is the number of violations that a Check keeps.
const shown = 8

// Checks holds the invariants of a run. It is safe for concurrent use.
type Checks struct {
	mu   sync.Mutex
	list []*Check
}

// List returns the invariants in the order in which they were first checked.
func (c *Checks) List() []Check {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []Check
	for _, check := range c.list {
		list = append(list, *check)
	}
	return list
}

// OK reports whether all invariants hold.
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

// Hold counts one check of an invariant. If holds is false, it records the formatted text as a violation.
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

// Note sets the note of an invariant.
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
	BodiesWhole     = "large bodies are published whole"
	BodiesKept      = "no large body is lost, none stays without an expiry"
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
