package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/luatx/luatx/message"
)

// ErrUnrouted says that no rule of Route takes an event.
var ErrUnrouted = errors.New("relay: no rule takes the event")

// Rule sends events to a Publisher: those that match all of what it sets. One that sets nothing matches every event.
type Rule struct {
	// Destination and Type are compared with the event's attributes. Empty: any.
	Destination, Type string
	// Match is asked besides. Defaults to any.
	Match message.Matcher
	// Name is the scope of an outage: rules of one name pause together. Defaults to Destination and Type.
	Name string
	// To publishes the events.
	To Publisher
}

func (r Rule) takes(event *message.RawMessage) bool {
	return (r.Destination == "" || r.Destination == event.Destination()) &&
		(r.Type == "" || r.Type == event.Type()) &&
		(r.Match == nil || r.Match(event.Attributes))
}

func (r Rule) name() string {
	both := r.Destination
	if r.Destination != "" && r.Type != "" {
		both += "/"
	}
	return cmp.Or(r.Name, both+r.Type, "default")
}

// Route sends each event where the first rule says that takes it; put one that takes every event last for a default. A
// batch is split and published side by side. An event that no rule takes is refused with ErrUnrouted, class unrouted,
// which counts an attempt: it is parked while nobody adds the rule.
//
// Each rule is a scope, and where its Publisher is Scoped each scope of that.
func Route(rules ...Rule) (Scoped, error) {
	for i, rule := range rules {
		if rule.To == nil {
			return nil, fmt.Errorf("relay: Route: rule %d (%s) has no Publisher: set To", i, rule.name())
		}
		if i > 0 && rules[i-1].Destination == "" && rules[i-1].Type == "" && rules[i-1].Match == nil {
			return nil, fmt.Errorf("relay: Route: rule %d (%s) is behind one that takes every event: put that last", i, rule.name())
		}
	}
	if len(rules) == 0 {
		return nil, errors.New("relay: Route needs a rule")
	}
	return router(append([]Rule(nil), rules...)), nil
}

type router []Rule

func (rules router) find(event *message.RawMessage) int {
	for i, rule := range rules {
		if rule.takes(event) {
			return i
		}
	}
	return -1
}

// Scope implements Scoped.
func (rules router) Scope(event *message.RawMessage) string {
	i := rules.find(event)
	if i < 0 {
		return ErrUnrouted.Error()
	}
	name := rules[i].name()
	if inner := scopeOf(rules[i].To, event); inner != "" {
		name += " " + inner
	}
	return name
}

// Publish implements Publisher.
func (rules router) Publish(ctx context.Context, events []*message.RawMessage) []error {
	errs := make([]error, len(events))
	routes := make(map[int][]int) // rule: positions in the batch
	for i, event := range events {
		rule := rules.find(event)
		if rule < 0 {
			errs[i] = Classify("unrouted", fmt.Errorf("%w: event %q of type %q for destination %q", ErrUnrouted, event.ID(), event.Type(), event.Destination()))
			continue
		}
		routes[rule] = append(routes[rule], i)
	}
	var side sync.WaitGroup
	for rule, positions := range routes {
		side.Go(func() { askFor(ctx, rules[rule].To, events, positions, errs) })
	}
	side.Wait()
	return errs
}

// askFor publishes the events at some positions of a batch, and puts the answers in their places.
func askFor(ctx context.Context, to Publisher, events []*message.RawMessage, positions []int, errs []error) {
	some := make([]*message.RawMessage, len(positions))
	for i, position := range positions {
		some[i] = events[position]
	}
	for i, err := range ask(ctx, to, some) {
		errs[positions[i]] = err
	}
}
