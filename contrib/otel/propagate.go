package otel

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/luatx/luatx/message"
)

// carrier adapts the attributes of a message to a propagator.
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

// Inject writes the span of ctx into the attributes of a message. Use it for events that are not outputs of a handler, such as
// those of luatx.Tx.Emit. It does nothing if ctx has no span.
func (t *Telemetry) Inject(ctx context.Context, attributes message.Attributes) {
	if attributes != nil && trace.SpanContextFromContext(ctx).IsValid() {
		t.cfg.Propagator.Inject(ctx, carrier(attributes))
	}
}

// Extract returns the span in which a message was created. If the attributes contain none, the SpanContext is invalid.
func (t *Telemetry) Extract(attributes message.Attributes) trace.SpanContext {
	return trace.SpanContextFromContext(t.cfg.Propagator.Extract(context.Background(), carrier(attributes)))
}

// links returns a link to each span in which the messages were created.
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
