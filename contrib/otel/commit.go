package otel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/luatx/luatx"
)

// Transactor returns an Observer for luatx.Config.Observer. It creates a span of kind client for each commit, inside the span of
// the message or the caller, and measures luatx.commit.duration and luatx.commit.events.
func (t *Telemetry) Transactor() luatx.Observer {
	return luatx.Observer{Committed: func(ctx context.Context, c luatx.Commit) {
		outcome := attribute.String("luatx.outcome", c.Outcome())
		end := c.Began.Add(c.Duration)
		_, span := t.tracer.Start(ctx, operation("commit", c.Namespace), trace.WithTimestamp(c.Began),
			trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
				semconv.DBSystemNameRedis, semconv.DBOperationName("EVALSHA"), namespace(c.Namespace), outcome,
				attribute.Int("luatx.slot", c.Slot), attribute.Int("luatx.commands", c.Commands), attribute.Int("luatx.events", c.Events),
				attribute.Int("luatx.attempts", c.Attempts), attribute.Int("luatx.batch", c.Batch),
				attribute.Bool("luatx.acknowledged", c.Acknowledged)))
		if c.Err != nil {
			span.SetAttributes(semconv.ErrorTypeKey.String(c.Outcome()))
			span.SetStatus(codes.Error, c.Err.Error())
		}
		t.commits.Record(ctx, c.Duration.Seconds(), metric.WithAttributes(namespace(c.Namespace), outcome))
		if c.Events > 0 && c.Result.Outcome == luatx.Committed {
			t.emitted.Add(ctx, int64(c.Events), metric.WithAttributes(namespace(c.Namespace)))
		}
		span.End(trace.WithTimestamp(end))
	}}
}
