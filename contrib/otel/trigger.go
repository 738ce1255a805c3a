package otel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/luatx/luatx/trigger"
)

// Trigger returns an Observer for trigger.Config.Observer that measures the runs of functions as luatx.trigger.duration.
func (t *Telemetry) Trigger() trigger.Observer {
	return trigger.Observer{Executed: func(ctx context.Context, e trigger.Executed) {
		t.executions.Record(ctx, e.Duration.Seconds(), metric.WithAttributes(
			triggerAttributes(e.Function, e.Transport, attribute.String("luatx.result", string(e.Result)))...))
	}}
}

// WatchTrigger exports the deliveries of a trigger that are in flight or waiting for a retry, the age of its oldest
// unacknowledged entry, its counts, and whether it is ready, as luatx.trigger.in_flight, retrying, oldest_unacked, deliveries and
// ready. It does so until the MeterProvider ends. Watched triggers must differ in function or transport. WatchTrigger returns an
// error if an instrument cannot be created.
func (t *Telemetry) WatchTrigger(r *trigger.Runtime) error {
	gauge := func(name, unit, help string) (metric.Float64ObservableGauge, error) {
		return t.meter.Float64ObservableGauge("luatx.trigger."+name, metric.WithUnit(unit), metric.WithDescription(help))
	}
	inFlight, err1 := gauge("in_flight", "{delivery}", "Deliveries in progress, or whose ack is not written yet.")
	retrying, err2 := gauge("retrying", "{delivery}", "Failed entries that wait for a retry.")
	oldest, err3 := gauge("oldest_unacked", "s", "Age of the oldest delivery that is not acknowledged; 0 if there is none.")
	ready, err4 := gauge("ready", "1", "1 if the trigger is connected and makes progress.")
	deliveries, err5 := t.meter.Int64ObservableCounter("luatx.trigger.deliveries", metric.WithUnit("{delivery}"),
		metric.WithDescription("Results of deliveries: delivered, failed, acked, ack_failed, dead_lettered, dropped."))
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	_, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		h, s := r.Health(), r.Stats()
		attributes := metric.WithAttributes(triggerAttributes(h.Function, h.Transport)...)
		o.ObserveFloat64(inFlight, float64(s.InFlight), attributes)
		o.ObserveFloat64(retrying, float64(s.Retrying), attributes)
		o.ObserveFloat64(oldest, s.OldestUnacked.Seconds(), attributes)
		connected := 0.0
		if h.Ready {
			connected = 1
		}
		o.ObserveFloat64(ready, connected, attributes)
		for what, n := range map[string]int64{
			"delivered": s.Delivered, "failed": s.Failed, "acked": s.Acked, "ack_failed": s.AckFailed,
			"dead_lettered": s.DeadLettered, "dropped": s.Dropped,
		} {
			o.ObserveInt64(deliveries, n, metric.WithAttributes(triggerAttributes(h.Function, h.Transport, attribute.String("luatx.what", what))...))
		}
		return nil
	}, inFlight, retrying, oldest, ready, deliveries)
	return err
}

func triggerAttributes(function, transport string, more ...attribute.KeyValue) []attribute.KeyValue {
	return append([]attribute.KeyValue{attribute.String("luatx.function", function), attribute.String("luatx.transport", transport)}, more...)
}
