package otel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/luatx/luatx/message"
)

// Process returns a middleware that creates a span of kind consumer for each message, and measures messaging.process.duration.
// The span is the root of a new trace with a link to the span in which the message was created. Place Process outside
// luatx.Middleware, so that the span includes the commit.
func (t *Telemetry) Process() message.Middleware {
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) (outputs []*message.Message, err error) {
			destination, common := t.origin(ctx, msg)
			ctx, span := t.tracer.Start(ctx, operation("process", destination), trace.WithNewRoot(),
				trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(t.links(msg.Attributes)...),
				trace.WithAttributes(append(about(msg.Attributes),
					append(common, semconv.MessagingSystemKey.String(system), semconv.MessagingOperationName("process"))...)...))
			began, finished := time.Now(), false
			defer func() {
				if !finished { // a panic passes through
					err = errors.New("panic")
					common = append(common, semconv.ErrorTypeKey.String("panic"))
				} else if err != nil {
					common = append(common, errorType(err))
				}
				fail(span, err)
				t.processes.Record(ctx, time.Since(began).Seconds(), "process", system, common...)
				span.End()
			}()
			outputs, err = next(ctx, msg)
			finished = true
			return outputs, err
		}
	})
}

// origin returns the name of the stream from which a message was read, and the attributes that many messages share.
func (t *Telemetry) origin(ctx context.Context, msg *message.Message) (string, []attribute.KeyValue) {
	common := []attribute.KeyValue{semconv.MessagingOperationTypeProcess}
	if handler, ok := message.HandlerNameFromContext(ctx); ok {
		common = append(common, attribute.String("luatx.handler", handler))
	}
	source, ok := msg.InputSource()
	if !ok {
		return "", common
	}
	destination := t.cfg.Destination(source.Stream)
	return destination, append(common,
		semconv.MessagingDestinationName(destination), semconv.MessagingConsumerGroupName(source.Group))
}

func about(a message.Attributes) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 12)
	for _, one := range [...]struct {
		key   attribute.Key
		value string
	}{
		{semconv.MessagingMessageIDKey, a.ID()},
		{semconv.CloudEventsEventIDKey, a.ID()},
		{semconv.CloudEventsEventTypeKey, a.Type()},
		{semconv.CloudEventsEventSourceKey, a.Source()},
		{semconv.CloudEventsEventSubjectKey, a.Subject()},
		{semconv.MessagingMessageConversationIDKey, a.CorrelationID()},
	} {
		if one.value != "" {
			all = append(all, one.key.String(one.value))
		}
	}
	return all
}

// Outputs returns a middleware that writes the current span into the outputs of a handler, so that their publication links to it.
// An output with its own trace context keeps it. Place Outputs innermost, next to the handler, because outbox.Middleware encodes
// the outputs.
func (t *Telemetry) Outputs() message.Middleware {
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			outputs, err := next(ctx, msg)
			for _, out := range outputs {
				if out == nil || out.Attributes[message.AttrTraceParent] != nil && !t.inherited(msg, out) {
					continue
				}
				if out.Attributes == nil {
					out.Attributes = message.Attributes{}
				}
				t.Inject(ctx, out.Attributes)
			}
			return outputs, err
		}
	})
}

// inherited reports whether an output has its trace context from the input, of which it is a copy.
func (t *Telemetry) inherited(in, out *message.Message) bool {
	return out != in && t.Extract(in.Attributes).Equal(t.Extract(out.Attributes))
}

// errorType returns the class of an error if it has one, and otherwise its type.
func errorType(err error) attribute.KeyValue {
	if c, ok := errors.AsType[interface {
		error
		Class() string
	}](err); ok && c.Class() != "" {
		return semconv.ErrorTypeKey.String(c.Class())
	}
	return semconv.ErrorType(err)
}

func fail(span trace.Span, err error) {
	if err != nil {
		span.SetAttributes(errorType(err))
		span.SetStatus(codes.Error, err.Error())
	}
}
