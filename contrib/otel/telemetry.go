package otel

import (
	"errors"

	global "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"
	"go.opentelemetry.io/otel/trace"

	"github.com/luatx/luatx/internal/slot"
)

const (
	scope = "github.com/luatx/luatx/contrib/otel"
	// system is the value of messaging.system for Redis streams.
	system = "redis"
)

// Config configures Telemetry. The zero value is usable.
type Config struct {
	// TracerProvider and MeterProvider default to the global ones.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Propagator reads and writes a context in the attributes of messages. Defaults to W3C Trace Context with the attributes
	// traceparent and tracestate. The names of its fields must be valid attribute names: letters and digits.
	Propagator propagation.TextMapPropagator
	// Destination returns the name of a stream for its key. Metrics have a series for each name, so there must be few. For
	// partitions, remove the tag from the keys. Defaults to the key without its {tag}.
	Destination func(stream string) string
}

// Telemetry creates spans and metrics. It is safe for concurrent use.
type Telemetry struct {
	cfg    Config
	tracer trace.Tracer

	operations messagingconv.ClientOperationDuration
	sent       messagingconv.ClientSentMessages
	consumed   messagingconv.ClientConsumedMessages
	processes  messagingconv.ProcessDuration

	meter       metric.Meter
	commits     metric.Float64Histogram
	executions  metric.Float64Histogram
	emitted     metric.Int64Counter
	settled     metric.Int64Counter
	outages     metric.Int64Counter
	abandoned   metric.Int64Counter
	stuck       metric.Int64UpDownCounter
	deadLetters metric.Int64Counter
}

// seconds are the bucket boundaries of durations. A commit takes less than a millisecond. A call to an overloaded
// destination takes long.
var seconds = metric.WithExplicitBucketBoundaries(
	.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30)

// New returns Telemetry, or an error if an instrument cannot be created.
func New(cfg Config) (*Telemetry, error) {
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = global.GetTracerProvider()
	}
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = global.GetMeterProvider()
	}
	if cfg.Propagator == nil {
		cfg.Propagator = propagation.TraceContext{}
	}
	if cfg.Destination == nil {
		cfg.Destination = slot.Without
	}
	t := &Telemetry{cfg: cfg, tracer: cfg.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))}
	meter := cfg.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
	t.meter = meter
	var errs [12]error
	t.operations, errs[0] = messagingconv.NewClientOperationDuration(meter, seconds)
	t.sent, errs[1] = messagingconv.NewClientSentMessages(meter)
	t.consumed, errs[2] = messagingconv.NewClientConsumedMessages(meter)
	t.processes, errs[3] = messagingconv.NewProcessDuration(meter, seconds)
	t.commits, errs[4] = meter.Float64Histogram("luatx.commit.duration", seconds, metric.WithUnit("s"),
		metric.WithDescription("Duration of commits, from the end of the handler until the outcome is known."))
	t.emitted, errs[5] = meter.Int64Counter("luatx.commit.events", metric.WithUnit("{event}"),
		metric.WithDescription("Events that transactions have put into the outbox."))
	t.settled, errs[6] = meter.Int64Counter("luatx.relay.events", metric.WithUnit("{event}"),
		metric.WithDescription("Results of events: sent, failed, returned, parked."))
	t.outages, errs[7] = meter.Int64Counter("luatx.relay.outages", metric.WithUnit("{outage}"),
		metric.WithDescription("Number of times that a destination became unavailable."))
	t.deadLetters, errs[8] = meter.Int64Counter("luatx.stream.dead_letters", metric.WithUnit("{message}"),
		metric.WithDescription("Entries that were moved to the dead-letter stream."))
	t.abandoned, errs[9] = meter.Int64Counter("luatx.relay.abandoned_calls", metric.WithUnit("{call}"),
		metric.WithDescription("Calls of the Publisher that the relay abandoned because they did not return."))
	t.stuck, errs[10] = meter.Int64UpDownCounter("luatx.relay.stuck_calls", metric.WithUnit("{call}"),
		metric.WithDescription("Abandoned calls of the Publisher that have not returned."))
	t.executions, errs[11] = meter.Float64Histogram("luatx.trigger.duration", seconds, metric.WithUnit("s"),
		metric.WithDescription("Duration of the functions of triggers, by result: succeeded, failed, refused, dropped, released."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return t, nil
}

// operation returns the name of a span by the semantic conventions.
func operation(name, destination string) string {
	if destination == "" {
		return name
	}
	return name + " " + destination
}

func namespace(name string) attribute.KeyValue { return attribute.String("luatx.namespace", name) }
