// Package otel traces and measures luatx by the semantic conventions for messaging of OpenTelemetry:
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
// The trace context travels in the attributes traceparent and tracestate of a message, through the inbox, the outbox and
// the stream. Work that a queue or the outbox separates is joined by links, and not by parents: each message that is
// handled, and each batch that is published, is a trace of its own, linked to where its messages were made.
//
// It adds nothing to the client: redisotel, where it is wanted, is its user's to install.
package otel
