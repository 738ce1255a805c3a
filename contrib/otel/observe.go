package otel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stream"
)

// Relay returns an Observer for relay.Config.Observer. It counts settled events as luatx.relay.events, outages as
// luatx.relay.outages, and calls of the Publisher that do not return as luatx.relay.abandoned_calls and luatx.relay.stuck_calls.
func (t *Telemetry) Relay() relay.Observer {
	return relay.Observer{
		Settled: func(ctx context.Context, s relay.Settled) {
			for state, n := range map[string]int{"sent": s.Sent, "failed": s.Failed, "returned": s.Returned, "parked": len(s.Parked)} {
				if n > 0 {
					t.settled.Add(ctx, int64(n), metric.WithAttributes(attribute.String("luatx.state", state)))
				}
			}
		},
		Outage: func(ctx context.Context, o relay.Outage) {
			if !o.Over {
				t.outages.Add(ctx, 1, metric.WithAttributes(attribute.String("messaging.destination.name", o.Destination)))
			}
		},
		Stuck: func(ctx context.Context, s relay.Stuck) {
			destination := metric.WithAttributes(attribute.String("messaging.destination.name", s.Destination))
			if s.Returned {
				t.stuck.Add(ctx, -1, destination)
				return
			}
			t.abandoned.Add(ctx, 1, destination)
			t.stuck.Add(ctx, 1, destination)
		},
	}
}

// Subscriber returns an Observer for stream.SubscriberConfig.Observer. It counts read entries as
// messaging.client.consumed.messages, and dead letters.
func (t *Telemetry) Subscriber() stream.Observer {
	return stream.Observer{
		Delivered: func(ctx context.Context, d stream.Delivered) {
			t.consumed.Add(ctx, 1, "receive", system, semconv.MessagingDestinationName(t.cfg.Destination(d.Source.Stream)),
				semconv.MessagingConsumerGroupName(d.Source.Group))
		},
		DeadLettered: func(ctx context.Context, d stream.DeadLettered) {
			t.deadLetters.Add(ctx, 1, metric.WithAttributes(
				semconv.MessagingDestinationName(t.cfg.Destination(d.Source.Stream)), semconv.MessagingConsumerGroupName(d.Source.Group)))
		},
	}
}
