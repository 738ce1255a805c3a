package otel_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/trigger"
)

func TestMetricsOfATriggerCountARetry(t *testing.T) {
	t.Parallel()
	r, client, key := newRecorder(t), redistest.Shared(t).Client(t), "{"+redistest.Tag(t)+"}:mails"
	for range 3 {
		redistest.Must(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []any{"data", "x"}}).Err())
	}
	failed := false
	mailer := trigger.New(trigger.Config{
		Function: "mailer", Connector: trigger.Connector{Client: client}, Mode: trigger.ModeStream, Stream: key, Group: "g",
		BlockTimeout: 20 * time.Millisecond, Observer: r.Trigger(), Logger: slog.New(slog.DiscardHandler),
		Run: func(context.Context, *message.RawMessage) error {
			if !failed {
				failed = true
				return message.RetryAfter(errors.New("later"), time.Hour)
			}
			return nil
		},
	})
	redistest.Must(t, r.WatchTrigger(mailer))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mailer.Run(ctx) }()
	redistest.Eventually(t, "two entries to be acked", func() bool {
		stats := mailer.Stats()
		return stats.Acked == 2 && stats.InFlight == 0
	})
	metrics := r.metrics(t)
	for name, want := range map[string]func(float64) bool{
		"luatx.trigger.in_flight":      func(v float64) bool { return v == 0 },
		"luatx.trigger.retrying":       func(v float64) bool { return v == 1 },
		"luatx.trigger.ready":          func(v float64) bool { return v == 1 },
		"luatx.trigger.oldest_unacked": func(v float64) bool { return v > 0 && v < 60 },
	} {
		gauge, _ := metrics[name].Data.(metricdata.Gauge[float64])
		if len(gauge.DataPoints) != 1 || !want(gauge.DataPoints[0].Value) {
			t.Errorf("%s is %+v", name, gauge.DataPoints)
			continue
		}
		if function, _ := gauge.DataPoints[0].Attributes.Value("luatx.function"); function.AsString() != "mailer" {
			t.Errorf("%s is of %q", name, function.AsString())
		}
	}
	for what, want := range map[string]int64{"delivered": 3, "failed": 1, "acked": 2, "dead_lettered": 0} {
		if got := sum(metrics["luatx.trigger.deliveries"], "luatx.what", what); got != want {
			t.Errorf("%d deliveries were %s, want %d", got, what, want)
		}
	}
	for result, want := range map[string]int64{"succeeded": 2, "failed": 1} {
		if got := sum(metrics["luatx.trigger.duration"], "luatx.result", result); got != want {
			t.Errorf("%d runs %s, want %d", got, result, want)
		}
	}
	cancel()
	redistest.Must(t, <-done)
}
