package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/luatx/luatx/message"
)

// ErrUnrouted is the error of an event that no rule of Route matches.
var ErrUnrouted = errors.New("relay: no rule takes the event")

// Rule routes events to a Publisher. It matches the events for which all of its conditions hold. A Rule without conditions
// matches every event.
type Rule struct {
	// Destination and Type are compared with the event's attributes. If empty, they match any event.
	Destination, Type string
	// Match is an additional condition. Defaults to none.
	Match message.Matcher
	// Name is the scope of the rule's outages. Rules with the same name pause together. Defaults to Destination and Type.
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

// Route returns a Publisher that publishes each event through the first rule that matches it. For a default, put a rule
// without conditions last. Route splits a batch by rule and publishes the parts concurrently. If no rule matches an event,
// its attempt fails with ErrUnrouted, class unrouted, and counts, so that the event is parked unless somebody adds a rule.
//
// Each rule is a scope. If its Publisher is Scoped, each scope of that Publisher is a scope of its own. Route returns an
// error if it gets no rules, a rule has no Publisher, or a rule follows one that matches every event.
func Route(rules ...Rule) (Scoped, error) {
	for i, rule := range rules {
		if rule.To == nil {
			return nil, fmt.Errorf("relay: Route: rule %d (%s) has no Publisher; set To", i, rule.name())
		}
		if i > 0 && rules[i-1].Destination == "" && rules[i-1].Type == "" && rules[i-1].Match == nil {
			return nil, fmt.Errorf("relay: Route: rule %d (%s) is after a rule that matches every event; put that rule last", i, rule.name())
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
	routes := make(map[int][]int) // rule to positions in the batch
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

// askFor publishes the events at some positions of a batch and stores their results at the same positions.
func askFor(ctx context.Context, to Publisher, events []*message.RawMessage, positions []int, errs []error) {
	some := make([]*message.RawMessage, len(positions))
	for i, position := range positions {
		some[i] = events[position]
	}
	for i, err := range ask(ctx, to, some) {
		errs[positions[i]] = err
	}
}
