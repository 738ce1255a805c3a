package otel

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"
	"go.opentelemetry.io/otel/trace"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// PublisherConfig configures a Publisher. The zero value is usable.
type PublisherConfig struct {
	// System is the value of messaging.system. Defaults to redis.
	System string
	// Destination returns the name of the destination of a message. There must be few names. Defaults to the message's
	// destination.
	Destination func(*message.RawMessage) string
}

// Publisher wraps a Publisher of a relay or a producer. It creates a span for each call, and measures
// messaging.client.operation.duration and messaging.client.sent.messages:
//
//	errs := telemetry.Publisher(relay.Streams(streams), cfg).Publish(ctx, messages)
//
// The span links to the spans in which messages were created. Messages without a trace context get that of the span, whose kind
// is then producer; otherwise it is client. If p is a relay.Scoped, the result is too.
func (t *Telemetry) Publisher(p relay.Publisher, cfg PublisherConfig) relay.Publisher {
	cfg.System = cmp.Or(cfg.System, system)
	if cfg.Destination == nil {
		cfg.Destination = func(msg *message.RawMessage) string { return msg.Destination() }
	}
	traced := &publisher{t, p, cfg}
	if scoped, ok := p.(relay.Scoped); ok {
		return relay.WithScope(traced, scoped.Scope)
	}
	return traced
}

type publisher struct {
	*Telemetry
	to  relay.Publisher
	cfg PublisherConfig
}

// Publish implements relay.Publisher.
func (p *publisher) Publish(ctx context.Context, messages []*message.RawMessage) []error {
	if len(messages) == 0 {
		return p.to.Publish(ctx, messages)
	}
	ctx, span, common := p.begin(ctx, messages)
	defer span.End()
	began := time.Now()
	errs := p.to.Publish(ctx, messages)
	failed := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		if failed++; failed == 1 {
			common = append(common, errorType(err))
			span.SetAttributes(errorType(err))
			span.SetStatus(codes.Error, err.Error())
		}
	}
	if failed > 0 {
		span.SetAttributes(attribute.Int("luatx.failed", failed))
	}
	p.operations.Record(ctx, time.Since(began).Seconds(), "send", messagingconv.SystemAttr(p.cfg.System), common...)
	p.count(ctx, messages, errs)
	return errs
}

// begin starts the span, and injects it into the messages that have no trace context.
func (p *publisher) begin(ctx context.Context, messages []*message.RawMessage) (context.Context, trace.Span, []attribute.KeyValue) {
	var made []message.Attributes
	var here []*message.RawMessage
	destination := p.cfg.Destination(messages[0])
	for _, msg := range messages {
		if p.cfg.Destination(msg) != destination {
			destination = "" // several destinations
		}
		if p.Extract(msg.Attributes).IsValid() {
			made = append(made, msg.Attributes)
		} else {
			here = append(here, msg)
		}
	}
	common := []attribute.KeyValue{semconv.MessagingOperationTypeSend}
	if destination != "" {
		common = append(common, semconv.MessagingDestinationName(destination))
	}
	kind := trace.SpanKindClient
	if len(here) > 0 {
		kind = trace.SpanKindProducer
	}
	attributes := append([]attribute.KeyValue{
		semconv.MessagingSystemKey.String(p.cfg.System), semconv.MessagingOperationName("send"),
	}, common...)
	if len(messages) == 1 {
		attributes = append(attributes, about(messages[0].Attributes)...)
	} else {
		attributes = append(attributes, semconv.MessagingBatchMessageCount(len(messages)))
	}
	ctx, span := p.tracer.Start(ctx, operation("send", destination), trace.WithSpanKind(kind),
		trace.WithLinks(p.links(made...)...), trace.WithAttributes(attributes...))
	for _, msg := range here {
		if msg.Attributes == nil {
			msg.Attributes = message.Attributes{}
		}
		p.Inject(ctx, msg.Attributes)
	}
	return ctx, span, common
}

func (p *publisher) count(ctx context.Context, messages []*message.RawMessage, errs []error) {
	sent := make(map[string]int64)
	for i, msg := range messages {
		if i >= len(errs) || errs[i] == nil {
			sent[p.cfg.Destination(msg)]++
		}
	}
	for destination, n := range sent {
		p.sent.Add(ctx, n, "send", messagingconv.SystemAttr(p.cfg.System), semconv.MessagingDestinationName(destination))
	}
}
