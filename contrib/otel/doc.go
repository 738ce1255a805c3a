// Package otel traces and measures luatx by the OpenTelemetry semantic conventions for messaging:
//
//	telemetry, err := otel.New(otel.Config{})
//
//	transactor, err := luatx.New(client, luatx.Config{Namespace: "orders", Observer: telemetry.Transactor()})
//	mw, err := stack.Scripted(transactor, stack.Config{})
//	router.Use(telemetry.Process(), mw, telemetry.Outputs())
//
//	publisher := telemetry.Publisher(relay.Streams(streams), otel.PublisherConfig{})
//	events, err := relay.New(transactor, publisher, relay.Config{Observer: telemetry.Relay()})
//	subscriber, err := stream.NewSubscriber(client, stream.SubscriberConfig{Observer: telemetry.Subscriber(), …})
//	mailer := trigger.New(trigger.Config{Observer: telemetry.Trigger(), …})
//	err = telemetry.WatchTrigger(mailer)
//
// The attributes traceparent and tracestate of a message carry the trace context through the inbox, the outbox and the stream.
// Links, not parents, connect work that a queue or the outbox separates. Each handled message and each published batch is a
// separate trace, with links to the spans in which its messages were created.
//
// The package does not instrument the client. To do so, install redisotel.
package otel
