package otel

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/luatx/luatx/message"
)

// carrier is the attributes of a message as a propagator sees them.
type carrier message.Attributes

func (c carrier) Get(name string) string {
	text, _ := c[name].(string)
	return text
}

func (c carrier) Set(name, value string) { c[name] = value }

func (c carrier) Keys() []string {
	names := make([]string, 0, len(c))
	for name := range c {
		names = append(names, name)
	}
	return names
}

// Inject writes the context's span into a message's attributes: for events that are made elsewhere than in the outputs of
// a handler, as by luatx.Tx.Emit. It does nothing where the context has no span.
func (t *Telemetry) Inject(ctx context.Context, attributes message.Attributes) {
	if attributes != nil && trace.SpanContextFromContext(ctx).IsValid() {
		t.cfg.Propagator.Inject(ctx, carrier(attributes))
	}
}

// Extract reads where a message was made; an invalid SpanContext: it does not say.
func (t *Telemetry) Extract(attributes message.Attributes) trace.SpanContext {
	return trace.SpanContextFromContext(t.cfg.Propagator.Extract(context.Background(), carrier(attributes)))
}

// links are to where messages were made, each place once.
func (t *Telemetry) links(messages ...message.Attributes) []trace.Link {
	var links []trace.Link
	known := make(map[trace.SpanID]bool, len(messages))
	for _, attributes := range messages {
		if made := t.Extract(attributes); made.IsValid() && !known[made.SpanID()] {
			known[made.SpanID()] = true
			links = append(links, trace.Link{SpanContext: made})
		}
	}
	return links
}
