package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/contrib/prometheus"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/repair"
	"github.com/luatx/luatx/stream"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func newMetrics(t *testing.T, cfg prometheus.Config) (*prometheus.Metrics, *prom.Registry) {
	t.Helper()
	m, err := prometheus.New(cfg)
	redistest.Must(t, err)
	registry := prom.NewPedanticRegistry()
	redistest.Must(t, registry.Register(m))
	return m, registry
}

// wants compares exported metrics.
func wants(t *testing.T, from prom.Gatherer, want string, names ...string) {
	t.Helper()
	if err := testutil.GatherAndCompare(from, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// value returns the exported value of a metric with all of these labels, in the order of name and value, or the count of a
// histogram. It returns -1 if there is none.
func value(t *testing.T, from prom.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := from.Gather()
	redistest.Must(t, err)
	sum, found := 0.0, false
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			has := make(map[string]string)
			for _, l := range metric.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			all := true
			for i := 0; i < len(labels); i += 2 {
				all = all && has[labels[i]] == labels[i+1]
			}
			if all {
				found = true
				sum += metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	if !found {
		return -1
	}
	return sum
}

// row is the expected value of a metric with a label.
type row struct {
	name, label, value string
	want               float64
}

func wantRows(t *testing.T, from prom.Gatherer, rows ...row) {
	t.Helper()
	for _, r := range rows {
		if got := value(t, from, r.name, r.label, r.value); got != r.want {
			t.Errorf("%s{%s=%q} is %v, want %v", r.name, r.label, r.value, got, r.want)
		}
	}
}

func TestMetricsOfARunCountCommitsEventsOutagesAndMessages(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	metrics, registry := newMetrics(t, prometheus.Config{})
	ns := redistest.Namespace(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: ns, Keyspace: luatx.Partitions(4), Observer: metrics.Transactor(ns)})
	redistest.Must(t, err)
	tried := make(map[string]int)
	publisher := relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
		errs := make([]error, len(events))
		for i, e := range events {
			tried[e.ID()]++
			switch {
			case e.ID() == "bad":
				errs[i] = message.Permanent(relay.Classify("http_422", errors.New("unreadable")))
			case e.ID() == "late" && tried["late"] == 1:
				errs[i] = errors.New("once more")
			case e.ID() == "down" && tried["down"] == 1:
				errs[i] = relay.Unavailable(errors.New("out of reach"))
			}
		}
		return errs
	})
	r, err := relay.New(tr, publisher, relay.Config{
		Observer: metrics.Relay(ns), Concurrency: 1, NoInline: true, BackoffBase: time.Millisecond, BackoffCap: time.Millisecond,
		PauseCap: 10 * time.Millisecond, SweepInterval: 10 * time.Millisecond,
	})
	redistest.Must(t, err)
	for i, id := range []string{"good", "bad", "late", "down"} {
		_, err := tr.Transact(t.Context(), "a", func(tx *luatx.Tx) error {
			return tx.Emit(luatx.Event{ID: id, Body: fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/s","type":"t"}`, id)})
		}, luatx.WithID(fmt.Sprint(i)))
		redistest.Must(t, err)
	}
	result, err := tr.Transact(t.Context(), "a", func(tx *luatx.Tx) error { return nil }, luatx.WithID("0"))
	redistest.Must(t, err)
	if result.Outcome != luatx.Duplicate {
		t.Fatal(result)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	redistest.Eventually(t, "three events to be sent and one to be parked", func() bool {
		return value(t, registry, "luatx_relay_events_total", "result", "sent") == 3 &&
			value(t, registry, "luatx_relay_parked_total", "class", "http_422") == 1 &&
			value(t, registry, "luatx_relay_unavailable", "destination", "") == 0
	})
	cancel()
	redistest.Must(t, <-done)
	wants(t, registry, strings.ReplaceAll(`
# HELP luatx_commit_events_total Events that transactions have put into the outbox.
# TYPE luatx_commit_events_total counter
luatx_commit_events_total{namespace="NS"} 4
# HELP luatx_commit_attempts_total Round trips of commits.
# TYPE luatx_commit_attempts_total counter
luatx_commit_attempts_total{namespace="NS"} 5
# HELP luatx_relay_outages_total Number of times that a destination became unavailable.
# TYPE luatx_relay_outages_total counter
luatx_relay_outages_total{destination="",namespace="NS"} 1
# HELP luatx_relay_unavailable 1 while a destination is unavailable.
# TYPE luatx_relay_unavailable gauge
luatx_relay_unavailable{destination="",namespace="NS"} 0
# HELP luatx_relay_parked_total Events that were parked, by the class of their failure.
# TYPE luatx_relay_parked_total counter
luatx_relay_parked_total{class="http_422",namespace="NS"} 1
`, "NS", ns), "luatx_commit_events_total", "luatx_commit_attempts_total", "luatx_relay_outages_total", "luatx_relay_unavailable", "luatx_relay_parked_total")
	wantRows(t, registry,
		row{"luatx_commit_duration_seconds", "outcome", "committed", 4},
		row{"luatx_commit_duration_seconds", "outcome", "duplicate", 1},
		row{"luatx_commit_batch_transactions", "namespace", ns, 5},
		row{"luatx_relay_events_total", "result", "sent", 3},
		row{"luatx_relay_events_total", "result", "failed", 1},
		row{"luatx_relay_events_total", "result", "parked", 1},
		row{"luatx_relay_events_total", "result", "lost", 0},
	)
}

// TestMetricsOfAStreamCountSettlements also checks the subscriber's own counts.
func TestMetricsOfAStreamCountSettlements(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	metrics, registry := newMetrics(t, prometheus.Config{Destination: func(string) string { return "orders" }})
	key := "{" + redistest.Tag(t) + "}:orders"
	for _, body := range []string{"good", "bad", "good"} {
		redistest.Must(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []any{"type", "t", "data", body}}).Err())
	}
	sub, err := stream.NewSubscriber(client, stream.SubscriberConfig{
		Stream: key, Group: "g", BlockTimeout: 20 * time.Millisecond, MaxDeliveries: 1, Observer: metrics.Subscriber(),
		Logger: slog.New(slog.DiscardHandler),
	})
	redistest.Must(t, err)
	metrics.Count("orders", "g", sub.Stats)
	ctx, cancel := context.WithCancel(t.Context())
	ch, err := sub.Subscribe(ctx)
	redistest.Must(t, err)
	for range 3 {
		if msg := <-ch; string(msg.Data) == "bad" {
			msg.Nack(errors.New("no"))
		} else {
			msg.Ack()
		}
	}
	redistest.Eventually(t, "the dead letter", func() bool { return sub.Stats().DeadLettered == 1 })
	cancel()
	for range ch {
	}
	for result, want := range map[string]float64{"acked": 2, "nacked": 1, "released": -1} {
		if got := value(t, registry, "luatx_stream_message_duration_seconds", "stream", "orders", "group", "g", "result", result); got != want {
			t.Errorf("%v messages are %s, want %v", got, result, want)
		}
	}
	wantRows(t, registry,
		row{"luatx_stream_entries_total", "what", "delivered", 3},
		row{"luatx_stream_entries_total", "what", "dead_lettered", 1},
		row{"luatx_stream_entries_total", "what", "trimmed", 0},
	)
}

func TestExternalLabelValuesCreateALimitedNumberOfSeries(t *testing.T) {
	t.Parallel()
	metrics, registry := newMetrics(t, prometheus.Config{MaxLabels: 3})
	observer := metrics.Relay("ns")
	for i := range 10 {
		observer.Settled(t.Context(), relay.Settled{Parked: []relay.Parked{{Class: fmt.Sprint("class-", i)}}})
	}
	if n, err := testutil.GatherAndCount(registry, "luatx_relay_parked_total"); err != nil || n != 4 {
		t.Errorf("%d series: %v", n, err)
	}
	wantRows(t, registry, row{"luatx_relay_parked_total", "class", "other", 7})
}

// TestTextsThatAreNotUTF8BecomeLabels tests names and classes that Redis and Go allow and Prometheus rejects.
func TestTextsThatAreNotUTF8BecomeLabels(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t).Client(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: redistest.Namespace(t), Keyspace: luatx.Partitions(1)})
	redistest.Must(t, err)
	op, err := admin.NewOperator(tr, admin.OperatorConfig{Client: client, Name: "metrics"})
	redistest.Must(t, err)
	in := redistest.Namespace(t) + "-in"
	for _, group := range []string{"a\xff", "a\xfe"} {
		redistest.Must(t, client.XGroupCreateMkStream(t.Context(), in, group, "0").Err())
	}
	outbox, err := prometheus.NewOutbox(op, prometheus.OutboxConfig{Namespace: "orders", Streams: []string{in}})
	redistest.Must(t, err)
	metrics, registry := newMetrics(t, prometheus.Config{})
	redistest.Must(t, registry.Register(outbox))
	metrics.Relay("orders").Settled(t.Context(), relay.Settled{Parked: []relay.Parked{{Class: "code \xff"}}})
	metrics.Count(in, "a\xff", func() stream.SubscriberStats { return stream.SubscriberStats{Delivered: 2} })
	if n := value(t, registry, "luatx_relay_parked_total", "class", `code \xff`); n != 1 {
		t.Errorf("%v parked events", n)
	}
	if n := value(t, registry, "luatx_stream_entries_total", "group", `a\xff`, "what", "delivered"); n != 2 {
		t.Errorf("%v delivered entries", n)
	}
	for _, group := range []string{`a\xff`, `a\xfe`} {
		if n := value(t, registry, "luatx_stream_pending", "group", group); n != 0 {
			t.Errorf("%v pending entries of %s", n, group)
		}
	}
}

func TestStuckCallsAreCountedUntilTheyReturn(t *testing.T) {
	t.Parallel()
	metrics, registry := newMetrics(t, prometheus.Config{})
	observer := metrics.Relay("shop")
	observer.Stuck(t.Context(), relay.Stuck{Destination: "d", Events: 3})
	observer.Stuck(t.Context(), relay.Stuck{Destination: "d", Events: 1})
	observer.Stuck(t.Context(), relay.Stuck{Destination: "d", Events: 3, Returned: true})
	wantRows(t, registry,
		row{"luatx_relay_abandoned_calls_total", "destination", "d", 2},
		row{"luatx_relay_stuck_calls", "destination", "d", 1},
	)
}

func TestOutageStaysEndedIfItsBeginningIsReportedLate(t *testing.T) {
	t.Parallel()
	metrics, registry := newMetrics(t, prometheus.Config{})
	observer, now := metrics.Relay("ns"), time.Now()
	observer.Outage(t.Context(), relay.Outage{Destination: "d", At: now.Add(time.Second), Over: true})
	observer.Outage(t.Context(), relay.Outage{Destination: "d", At: now, Err: errors.New("no")})
	wantRows(t, registry, row{"luatx_relay_unavailable", "destination", "d", 0})
}

// TestOutboxGaugesDescribeTheShards also checks that a scrape soon afterwards sends no query, and that the gauges are missing
// if the server does not reply.
func TestOutboxGaugesDescribeTheShards(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	client := server.Client(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: redistest.Namespace(t), Keyspace: luatx.Partitions(4)})
	redistest.Must(t, err)
	op, err := admin.NewOperator(tr, admin.OperatorConfig{Client: client, Name: "metrics"})
	redistest.Must(t, err)
	var ids []luatx.Event
	for i := range 5 {
		ids = append(ids, luatx.Event{ID: fmt.Sprint(i), Body: fmt.Appendf(nil, `{"specversion":"1.0","id":"%d","source":"/s","type":"t"}`, i)})
	}
	_, err = tr.Enqueue(t.Context(), "a", ids...)
	redistest.Must(t, err)
	redistest.Must(t, client.XGroupCreateMkStream(t.Context(), "in", "g", "0").Err())
	redistest.Must(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: "in", Values: []any{"f", "v"}}).Err())
	redistest.Must(t, client.XAdd(t.Context(), &redis.XAddArgs{
		Stream: stream.DeadLetterKey("old"), ID: fmt.Sprint(time.Now().Add(-time.Hour).UnixMilli(), "-1"), Values: []any{"f", "v"},
	}).Err())
	park(t, tr, op, "http_422")
	park(t, tr, op, "http_500")
	var lane []luatx.Event
	for _, id := range []string{"head", "behind", "last"} {
		lane = append(lane, luatx.Event{ID: id, Key: "k", Body: fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/s","type":"t"}`, id)})
	}
	_, err = tr.Enqueue(t.Context(), elsewhere(t, tr, "a"), lane...)
	redistest.Must(t, err)
	parkOf(t, tr, op, elsewhere(t, tr, "a"), "http_422")

	timers, err := expiry.New(tr, expiry.Config{})
	redistest.Must(t, err, timers.Record(t.Context(), "a", time.UnixMilli(1)), timers.Record(t.Context(), "b", time.Now().Add(time.Hour)))
	worker, err := repair.New(tr, repair.Config{})
	redistest.Must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	redistest.Eventually(t, "the worker to register itself", func() bool {
		for _, err := range op.Processes(t.Context()) {
			return err == nil
		}
		return false
	})

	registry := prom.NewPedanticRegistry()
	outbox, err := prometheus.NewOutbox(op, prometheus.OutboxConfig{
		Namespace: "orders", Streams: []string{"in", "old"}, MinInterval: time.Hour, MaxClasses: 1, Logger: slog.New(slog.DiscardHandler),
	})
	redistest.Must(t, err)
	redistest.Must(t, registry.Register(outbox))
	check := func() {
		t.Helper()
		wantRows(t, registry,
			row{"luatx_outbox_up", "namespace", "orders", 1},
			row{"luatx_outbox_events", "state", "pending", 3},
			row{"luatx_outbox_events", "state", "parked", 3},
			row{"luatx_outbox_events", "state", "waiting", 2},
			row{"luatx_outbox_blocked_events", "namespace", "orders", 2},
			row{"luatx_outbox_blocked_keys", "namespace", "orders", 1},
			row{"luatx_outbox_parked", "class", "http_422", 2},
			row{"luatx_outbox_parked", "class", "other", 1},
			row{"luatx_outbox_changes_total", "what", "enqueued", 8},
			row{"luatx_outbox_changes_total", "what", "parked", 3},
			row{"luatx_stream_lag", "stream", "in", 1},
			row{"luatx_stream_pending", "group", "g", 0},
			row{"luatx_stream_dead_letters", "stream", "in", 0},
			row{"luatx_stream_oldest_dead_letter_seconds", "stream", "in", 0},
			row{"luatx_stream_dead_letters", "stream", "old", 1},
			row{"luatx_processes", "state", "alive", 1},
			row{"luatx_processes", "kind", "trigger", 0},
			row{"luatx_timers", "state", "open", 2},
			row{"luatx_timers", "state", "due", 1},
		)
		if got := value(t, registry, "luatx_stream_oldest_dead_letter_seconds", "stream", "old"); got < 3600 || got > 3660 {
			t.Errorf("the oldest dead letter has the age of %v s", got)
		}
		if got := value(t, registry, "luatx_outbox_oldest_due_seconds"); got < 0 || got > 60 {
			t.Errorf("due for %v s", got)
		}
		if got := value(t, registry, "luatx_outbox_oldest_unpublished_seconds"); got <= 0 || got > 60 {
			t.Errorf("unpublished for %v s", got)
		}
	}
	check()
	stop()
	redistest.Must(t, <-ended)
	park(t, tr, op, "http_422")
	calls := client.Info(t.Context(), "commandstats").Val()
	check() // returns the same values
	if now := client.Info(t.Context(), "commandstats").Val(); calledOften(now) != calledOften(calls) {
		t.Error("a scrape within MinInterval asked the server")
	}
	fresh, err := prometheus.NewOutbox(op, prometheus.OutboxConfig{
		Namespace: "orders", MinInterval: -1, Timeout: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	redistest.Must(t, err)
	registry = prom.NewPedanticRegistry()
	redistest.Must(t, registry.Register(fresh))
	wantRows(t, registry, row{"luatx_outbox_events", "state", "parked", 4})
	redistest.Must(t, server.Kill())
	if up, parked := value(t, registry, "luatx_outbox_up"), value(t, registry, "luatx_outbox_events"); up != 0 || parked != -1 {
		t.Errorf("without a server up is %v, and there are %v events", up, parked)
	}
}

// park parks the longest-overdue event.
func park(t *testing.T, tr *luatx.Transactor, op *admin.Operator, class string) {
	t.Helper()
	parkOf(t, tr, op, "a", class)
}

// elsewhere returns an aggregate in another slot.
func elsewhere(t *testing.T, tr *luatx.Transactor, aggregate string) string {
	t.Helper()
	here, err := tr.Keyspace().Tag(aggregate)
	redistest.Must(t, err)
	for i := 0; ; i++ {
		other := fmt.Sprint(aggregate, i)
		tag, err := tr.Keyspace().Tag(other)
		redistest.Must(t, err)
		if tag != here {
			return other
		}
	}
}

// parkOf parks the event of an aggregate's shard that is due the longest.
func parkOf(t *testing.T, tr *luatx.Transactor, op *admin.Operator, aggregate, class string) {
	t.Helper()
	tag, err := tr.Keyspace().Tag(aggregate)
	redistest.Must(t, err)
	work, n := outbox.Work{Limit: 1}, slot.OfTag(tag)
	taken, err := op.Outbox().Claim(t.Context(), n, work)
	redistest.Must(t, err)
	done, err := op.Outbox().Failed(t.Context(), taken, work, outbox.Fault{
		ID: taken.Events[0].ID, Err: message.Permanent(relay.Classify(class, errors.New("no"))),
	})
	if err != nil || done[0] != 1 {
		t.Fatal(done, err)
	}
}

// calledOften returns the lines of commandstats about scripts.
func calledOften(stats string) (lines string) {
	for line := range strings.Lines(stats) {
		if calls, _, _ := strings.Cut(line, ","); strings.HasPrefix(calls, "cmdstat_evalsha") || strings.HasPrefix(calls, "cmdstat_time") {
			lines += calls
		}
	}
	return lines
}
