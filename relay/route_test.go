package relay_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// named returns, for every event, an error with its own name and the event's id.
func named(name string) relay.Publisher {
	return relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
		errs := make([]error, len(events))
		for i, event := range events {
			errs[i] = errors.New(name + ":" + event.ID())
		}
		return errs
	})
}

func TestRouteUsesTheFirstRuleThatMatches(t *testing.T) {
	t.Parallel()
	broken := relay.PublisherFunc(func(context.Context, []*message.RawMessage) []error { panic("a bug") })
	short := relay.PublisherFunc(func(context.Context, []*message.RawMessage) []error { return []error{nil, nil} })
	quiet := relay.PublisherFunc(func(context.Context, []*message.RawMessage) []error { return nil })
	route, err := relay.Route(
		relay.Rule{Destination: "billing", Type: "order.placed", To: named("both")},
		relay.Rule{Destination: "billing", To: relay.WithScope(named("billing"), func(e *message.RawMessage) string { return "host" + e.ID() })},
		relay.Rule{Type: "order.placed", To: named("type"), Name: "orders"},
		relay.Rule{Match: message.MatchSource("/web"), To: named("web")},
		relay.Rule{Type: "breaks", To: broken},
		relay.Rule{Type: "short", To: short},
		relay.Rule{Type: "quiet", To: quiet},
	)
	redistest.Must(t, err)
	tests := []struct{ destination, kind, source, answer, scope string }{
		{"billing", "order.placed", "/s", "both:0", "billing/order.placed"},
		{"billing", "x", "/s", "billing:1", "billing host1"},
		{"", "order.placed", "/s", "type:2", "orders"},
		{"", "x", "/web", "web:3", "default"},
		{"elsewhere", "y", "/s", `relay: no rule takes the event: event "4" of type "y" for destination "elsewhere"`, "relay: no rule takes the event"},
		{"", "breaks", "/s", "relay: the publisher panicked: a bug", "breaks"},
		{"", "short", "/s", "relay: the publisher answered 2 times to 1 events", "short"},
		{"", "quiet", "/s", "", "quiet"},
		{"billing", "z", "/s", "billing:8", "billing host8"},
	}
	events := rawEvents(len(tests), func(i int, a message.Attributes) {
		a["destination"], a["type"], a["source"] = tests[i].destination, tests[i].kind, tests[i].source
	})
	for i, err := range route.Publish(t.Context(), events) {
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != tests[i].answer {
			t.Errorf("event %d: %q, want %q", i, got, tests[i].answer)
		}
		if scope := route.Scope(events[i]); scope != tests[i].scope {
			t.Errorf("event %d: scope %q, want %q", i, scope, tests[i].scope)
		}
	}
	unrouted := route.Publish(t.Context(), events[4:5])[0]
	var classified relay.Classified
	if !errors.Is(unrouted, relay.ErrUnrouted) || !errors.As(unrouted, &classified) || classified.Class() != "unrouted" {
		t.Errorf("%v", unrouted)
	}
}

func TestRouteRejectsInvalidRules(t *testing.T) {
	t.Parallel()
	for want, rules := range map[string][]relay.Rule{
		"needs a rule":     nil,
		"no Publisher":     {{Type: "t"}},
		"every event":      {{To: named("a")}, {Type: "t", To: named("b")}},
		"rule 1 (billing)": {{Type: "t", To: named("a")}, {Destination: "billing"}},
	} {
		if _, err := relay.Route(rules...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestRoutesOfABatchRunConcurrently(t *testing.T) {
	t.Parallel()
	met := make(chan struct{})
	meets := relay.PublisherFunc(func(ctx context.Context, _ []*message.RawMessage) []error {
		select {
		case met <- struct{}{}:
		case <-met:
		case <-ctx.Done():
			return []error{ctx.Err()}
		}
		return nil
	})
	route, err := relay.Route(relay.Rule{Type: "a", To: meets}, relay.Rule{To: meets})
	redistest.Must(t, err)
	for _, err := range route.Publish(t.Context(), rawEvents(2, func(i int, a message.Attributes) { a["type"] = string(rune('a' + i)) })) {
		if err != nil {
			t.Error(err)
		}
	}
}
