package otel_test

import (
	"context"
	"fmt"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/luatx/luatx/contrib/otel"
	"github.com/luatx/luatx/message"
)

// Events that are not outputs of a handler get their trace context from Inject.
func ExampleTelemetry_Inject() {
	provider := sdktrace.NewTracerProvider()
	defer func() { _ = provider.Shutdown(context.Background()) }()
	telemetry, err := otel.New(otel.Config{TracerProvider: provider})
	if err != nil {
		panic(err)
	}
	ctx, span := provider.Tracer("example").Start(context.Background(), "place order")
	defer span.End()

	event := message.New(nil, message.Attributes{"type": "order.placed", "source": "/orders"}, nil)
	telemetry.Inject(ctx, event.Attributes) // then outbox.Encode(event) and Tx.Emit

	made := telemetry.Extract(event.Attributes)
	fmt.Println(made.SpanID() == span.SpanContext().SpanID(), len(event.Attributes["traceparent"].(string)))
	// Output: true 55
}
