package history

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // tells long names apart
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/luatx/luatx/internal/settle"
)

// Outcomes counts events by outcome.
type Outcomes struct {
	// Sent counts events that were published, Failed counts events that are retried, Returned counts events that are
	// retried without having used up an attempt, and Parked counts events that wait for an operator.
	Sent, Failed, Returned, Parked int64
}

// Add adds the other counts to o.
func (o *Outcomes) Add(more Outcomes) {
	o.Sent, o.Failed, o.Returned, o.Parked = o.Sent+more.Sent, o.Failed+more.Failed, o.Returned+more.Returned, o.Parked+more.Parked
}

// Total returns the sum of the counts.
func (o Outcomes) Total() int64 { return o.Sent + o.Failed + o.Returned + o.Parked }

func (o Outcomes) text() string {
	return fmt.Sprintf("%d %d %d %d", o.Sent, o.Failed, o.Returned, o.Parked)
}

const (
	// maxNames is the maximum number of destinations, and of classes, that a counter distinguishes between two writes.
	maxNames = 1000
	// maxName is the maximum size of a name in bytes. A hash whose fields are no longer than 64 bytes is stored
	// compactly.
	maxName = 60
)

// The fields of an interval; see internal/lua/history.lua.
const (
	destinationField = "d"
	classField       = "c"
)

// Counter counts events. Its zero value works, and a nil Counter counts nothing. It is safe for concurrent use.
type Counter struct {
	mu  sync.Mutex
	now counts
}

type counts struct {
	destinations map[string]*Outcomes
	classes      map[string]int64
	other        Outcomes
	otherClasses int64
}

// Add counts an event of a destination. Class is the class of its failure. A returned event that has a class counts as
// a failure.
func (c *Counter) Add(destination string, fate settle.Fate, class string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	outcomes := c.now.of(destination)
	switch fate {
	case settle.Sent:
		outcomes.Sent++
		return
	case settle.Retry:
		outcomes.Failed++
	case settle.Park:
		outcomes.Parked++
		class = cmp.Or(class, "exhausted")
	case settle.GiveBack:
		outcomes.Returned++
		if class == "" {
			return
		}
	default:
		return
	}
	c.now.failed(class, 1)
}

// of returns the outcomes of a destination.
func (c *counts) of(destination string) *Outcomes {
	if known := c.destinations[destination]; known != nil {
		return known
	}
	if len(c.destinations) == maxNames {
		return &c.other
	}
	if c.destinations == nil {
		c.destinations = map[string]*Outcomes{}
	}
	fresh := new(Outcomes)
	c.destinations[strings.Clone(destination)] = fresh
	return fresh
}

func (c *counts) failed(class string, n int64) {
	if _, known := c.classes[class]; !known && len(c.classes) == maxNames {
		c.otherClasses += n
		return
	}
	if c.classes == nil {
		c.classes = map[string]int64{}
	}
	c.classes[strings.Clone(class)] += n
}

// take returns the counts since the last call.
func (c *Counter) take() (taken counts) {
	if c == nil {
		return taken
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	taken, c.now = c.now, counts{}
	return taken
}

// putBack adds the counts of a failed write again.
func (c *Counter) putBack(old counts) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, outcomes := range old.destinations {
		c.now.of(name).Add(*outcomes)
	}
	for class, n := range old.classes {
		c.now.failed(class, n)
	}
	c.now.other.Add(old.other)
	c.now.otherClasses += old.otherClasses
}

// pairs returns the arguments of the script. The destinations and classes with the most events come first, because an
// interval has room for a limited number.
func (c *counts) pairs() (pairs []any) {
	for _, name := range slices.SortedFunc(maps.Keys(c.destinations), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.destinations[b].Total(), c.destinations[a].Total()), cmp.Compare(a, b))
	}) {
		if outcomes := c.destinations[name]; outcomes.Total() > 0 {
			pairs = append(pairs, destinationField+":"+shorten(name), outcomes.text())
		}
	}
	for _, class := range slices.SortedFunc(maps.Keys(c.classes), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.classes[b], c.classes[a]), cmp.Compare(a, b))
	}) {
		pairs = append(pairs, classField+":"+shorten(class), c.classes[class])
	}
	if c.other.Total() > 0 {
		pairs = append(pairs, destinationField, c.other.text())
	}
	if c.otherClasses > 0 {
		pairs = append(pairs, classField, c.otherClasses)
	}
	return pairs
}

// shorten returns a name of at most maxName bytes. A longer name is cut and ends with a digest, so that names with the
// same beginning differ.
func shorten(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha1.Sum([]byte(name)) //nolint:gosec // see above
	digest := "~" + hex.EncodeToString(sum[:4])
	return strings.ToValidUTF8(name[:maxName-len(digest)], "") + digest
}
