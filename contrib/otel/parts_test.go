package otel_test

import (
	"context"
	"errors"
	"testing"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/luatx/luatx/contrib/otel"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

const (
	parent  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	another = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203332-01"
)

func raw(id, traceparent string) *message.RawMessage {
	a := message.Attributes{"id": id, "type": "t", "source": "/s", "destination": "there"}
	if traceparent != "" {
		a["traceparent"] = traceparent
	}
	return message.NewRaw(nil, a, nil)
}

// TestBatchSpanLinksToTheSpansOfItsMessages also checks that messages without a trace context get that of the span.
func TestBatchSpanLinksToTheSpansOfItsMessages(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	refused := relay.Classify("http_422", errors.New("unreadable"))
	var given []*message.RawMessage
	inner := relay.WithScope(relay.PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
		given = events
		if !trace.SpanContextFromContext(ctx).IsValid() {
			t.Error("the publisher's context has no span")
		}
		return []error{nil, refused, nil, nil}
	}), func(*message.RawMessage) string { return "scope" })
	p := r.Publisher(inner, otel.PublisherConfig{System: "http"})
	if s, ok := p.(relay.Scoped); !ok || s.Scope(nil) != "scope" {
		t.Error("it is scoped no more")
	}
	batch := []*message.RawMessage{raw("1", parent), raw("2", parent), raw("3", another), raw("4", "")}
	if errs := p.Publish(t.Context(), batch); len(errs) != 4 || !errors.Is(errs[1], refused) {
		t.Errorf("answers %v", errs)
	}
	spans := r.spans.GetSpans()
	if len(spans) != 1 {
		t.Fatalf("%d spans", len(spans))
	}
	span := spans[0]
	if span.Name != "send there" || span.SpanKind != trace.SpanKindProducer || len(span.Links) != 2 || span.Status.Code != codes.Error {
		t.Errorf("%+v", span)
	}
	for key, want := range map[string]string{
		"messaging.system": "http", "messaging.batch.message_count": "4", "luatx.failed": "1", "error.type": "http_422",
	} {
		if got := attr(span, key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if made := r.Extract(given[3].Attributes); made.SpanID() != span.SpanContext.SpanID() || given[0].Attributes["traceparent"] != parent {
		t.Errorf("given %v and %v", given[0].Attributes, given[3].Attributes)
	}
	if n := sum(r.metrics(t)["messaging.client.sent.messages"], "messaging.system", "http"); n != 3 {
		t.Errorf("%d count as sent", n)
	}
}

func TestOutputsGetTheHandlersSpanUnlessTheyHaveTheirOwn(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	router := message.NewRouter(message.PipeConfig{})
	redistest.Must(t, router.Use(r.Process(), r.Outputs()))
	redistest.Must(t, router.AddHandler("h", nil, message.NewHandler(func(_ context.Context, msg *message.TypedMessage[any]) ([]*message.Message, error) {
		return []*message.Message{
			{Attributes: nil},
			message.Copy(msg, any("copied")),
			message.New(nil, message.Attributes{"traceparent": another}, nil),
		}, nil
	})))
	outputs, err := router.Process(t.Context(), message.New(nil, message.Attributes{"id": "1", "type": "t", "traceparent": parent}, nil))
	redistest.Must(t, err)
	span := r.spans.GetSpans()[0]
	for i, want := range []trace.SpanID{span.SpanContext.SpanID(), span.SpanContext.SpanID(), r.Extract(message.Attributes{"traceparent": another}).SpanID()} {
		if got := r.Extract(outputs[i].Attributes).SpanID(); got != want {
			t.Errorf("output %d was made in %s, want %s", i, got, want)
		}
	}
	if span.Name != "process" || len(span.Links) != 1 {
		t.Errorf("a message from nowhere: %+v", span)
	}
}

func TestSpanOfAPanickingHandlerEndsAsFailed(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	router := message.NewRouter(message.PipeConfig{})
	redistest.Must(t, router.Use(r.Process()))
	redistest.Must(t, router.AddHandler("h", nil, message.NewHandler(func(context.Context, *message.TypedMessage[any]) ([]*message.Message, error) {
		panic("what a day")
	})))
	if _, err := router.Process(t.Context(), message.New(nil, nil, nil)); err == nil {
		t.Error("no error")
	}
	spans := r.spans.GetSpans()
	if len(spans) != 1 || spans[0].Status.Code != codes.Error {
		t.Fatalf("%+v", spans)
	}
	if n := sum(r.metrics(t)["messaging.process.duration"], "error.type", "panic"); n != 1 {
		t.Errorf("%d panics are measured", n)
	}
}
