package prometheus_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/contrib/prometheus"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/trigger"
)

func run(t *testing.T, cfg trigger.Config) *trigger.Runtime {
	t.Helper()
	r := trigger.New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		redistest.Must(t, <-done)
	})
	return r
}

func TestMetricsOfTriggersWithOneFunctionAreSummed(t *testing.T) {
	t.Parallel()
	client, free := redistest.Shared(t).Client(t), make(chan struct{})
	metrics, registry := newMetrics(t, prometheus.Config{})
	const age = time.Hour
	for range 2 {
		key := "{" + redistest.Tag(t) + "}:mails"
		for i, data := range []string{"later", "slow", "good", "never"} {
			id := strconv.FormatInt(time.Now().Add(-age).UnixMilli(), 10) + "-" + strconv.Itoa(i)
			redistest.Must(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: key, ID: id, Values: []any{data, ""}}).Err())
		}
		metrics.WatchTrigger(run(t, trigger.Config{
			Function: "mailer", Connector: trigger.Connector{Client: client}, Mode: trigger.ModeStream, Stream: key, Group: "g",
			BlockTimeout: 20 * time.Millisecond, Concurrency: 2, ProgressTimeout: 200 * time.Millisecond, Observer: metrics.Trigger(),
			Logger: slog.New(slog.DiscardHandler),
			Run: func(_ context.Context, msg *message.RawMessage) error {
				p := string(msg.Data)
				switch {
				case strings.Contains(p, "later"):
					return message.RetryAfter(errors.New("later"), time.Hour)
				case strings.Contains(p, "slow"):
					<-free
				case strings.Contains(p, "never"):
					return message.Permanent(errors.New("never"))
				}
				return nil
			},
		}))
	}
	redistest.Eventually(t, "the triggers to be stalled", func() bool {
		return value(t, registry, "luatx_trigger_in_flight") == 2 && value(t, registry, "luatx_trigger_ready", "function", "mailer") == 0 &&
			value(t, registry, "luatx_trigger_deliveries_total", "what", "dead_lettered") == 2
	})
	if got := value(t, registry, "luatx_trigger_oldest_unacked_seconds", "transport", "redis.stream"); got < age.Seconds() || got > age.Seconds()+60 {
		t.Errorf("the oldest entry is %v s old", got)
	}
	close(free)
	redistest.Eventually(t, "the triggers to have acknowledged the rest", func() bool {
		return value(t, registry, "luatx_trigger_ready") == 1 && value(t, registry, "luatx_trigger_in_flight") == 0 &&
			value(t, registry, "luatx_trigger_deliveries_total", "what", "acked") == 4
	})
	for what, want := range map[string]float64{"delivered": 8, "failed": 4, "acked": 4, "dead_lettered": 2, "dropped": 0, "ack_failed": 0} {
		if got := value(t, registry, "luatx_trigger_deliveries_total", "function", "mailer", "transport", "redis.stream", "what", what); got != want {
			t.Errorf("%v deliveries were %s, want %v", got, what, want)
		}
	}
	for result, want := range map[string]float64{"succeeded": 4, "failed": 2, "refused": 2, "dropped": -1} {
		if got := value(t, registry, "luatx_trigger_execution_duration_seconds", "function", "mailer", "result", result); got != want {
			t.Errorf("%v runs %s, want %v", got, result, want)
		}
	}
	if retrying := value(t, registry, "luatx_trigger_retrying"); retrying != 2 {
		t.Errorf("%v retrying", retrying)
	}
}
