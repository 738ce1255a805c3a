package otel_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/luatx/luatx/internal/test/redistest"
)

func attr(span tracetest.SpanStub, key string) string {
	for _, a := range span.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// TestSpansOfAnOrderAreLinkedAcrossQueueAndOutbox checks names, kinds, attributes, parents and links.
func TestSpansOfAnOrderAreLinkedAcrossQueueAndOutbox(t *testing.T) {
	t.Parallel()
	s := openShop(t, redistest.Shared(t).Client(t))
	s.order(t, "o-1", "tea")
	spans := s.await(t, "process order-events", 1)
	one := func(name string) tracetest.SpanStub {
		t.Helper()
		if len(spans[name]) != 1 {
			t.Fatalf("%d spans %q among %q", len(spans[name]), name, slices.Sorted(maps.Keys(spans)))
		}
		return spans[name][0]
	}
	commits := func(service string) tracetest.SpanStub {
		t.Helper()
		for name := range spans {
			if strings.HasPrefix(name, "commit ") && strings.HasSuffix(name, service) {
				return one(name)
			}
		}
		t.Fatalf("no commit of %s among %q", service, slices.Sorted(maps.Keys(spans)))
		return tracetest.SpanStub{}
	}
	tests := []struct {
		span           tracetest.SpanStub
		kind           trace.SpanKind
		parent, linked string
		want           map[string]string
	}{
		{one("send orders"), trace.SpanKindProducer, "POST /orders", "", map[string]string{
			"messaging.system": "redis", "messaging.operation.name": "send", "messaging.operation.type": "send",
			"messaging.destination.name": "orders", "messaging.message.id": "cmd-o-1", "cloudevents.event_id": "cmd-o-1",
			"cloudevents.event_type": "place.order", "cloudevents.event_source": "/shop", "cloudevents.event_subject": "o-1",
		}},
		{one("process orders"), trace.SpanKindConsumer, "", "send orders", map[string]string{
			"messaging.system": "redis", "messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.destination.name": "orders", "messaging.consumer.group.name": "orders", "messaging.message.id": "cmd-o-1",
			"luatx.handler": "place-order",
		}},
		{commits("-orders"), trace.SpanKindClient, "process orders", "", map[string]string{
			"db.system.name": "redis", "db.operation.name": "EVALSHA", "luatx.outcome": "committed", "luatx.events": "1",
			"luatx.commands": "1", "luatx.attempts": "1", "luatx.batch": "1", "luatx.acknowledged": "true",
		}},
		{one("send order-events"), trace.SpanKindClient, "", "process orders", map[string]string{
			"messaging.system": "redis", "messaging.operation.name": "send", "messaging.destination.name": "order-events",
			"cloudevents.event_type": "order.placed",
		}},
		{one("process order-events"), trace.SpanKindConsumer, "", "process orders", map[string]string{
			"messaging.destination.name": "order-events", "messaging.consumer.group.name": "shipping", "luatx.handler": "ship",
		}},
		{commits("-shipping"), trace.SpanKindClient, "process order-events", "", map[string]string{
			"luatx.outcome": "committed", "luatx.events": "0", "luatx.acknowledged": "true",
		}},
	}
	for _, test := range tests {
		name := test.span.Name
		if test.span.SpanKind != test.kind || test.span.Status.Code != codes.Unset {
			t.Errorf("%s: kind %v, status %v", name, test.span.SpanKind, test.span.Status)
		}
		if test.parent == "" && test.span.Parent.IsValid() {
			t.Errorf("%s has a parent", name)
		}
		if test.parent != "" && test.span.Parent.SpanID() != one(test.parent).SpanContext.SpanID() {
			t.Errorf("%s has another parent than %s", name, test.parent)
		}
		if test.linked == "" && len(test.span.Links) > 0 ||
			test.linked != "" && (len(test.span.Links) != 1 || test.span.Links[0].SpanContext.SpanID() != one(test.linked).SpanContext.SpanID()) {
			t.Errorf("%s: links %v, want %s", name, test.span.Links, test.linked)
		}
		for key, want := range test.want {
			if got := attr(test.span, key); got != want {
				t.Errorf("%s: %s is %q, want %q", name, key, got, want)
			}
		}
	}
}

// sum adds up the series of a metric with this attribute, or all series for an empty key. Histograms count their values.
func sum(m metricdata.Metrics, key, value string) (n int64) {
	has := func(set attribute.Set) bool {
		v, _ := set.Value(attribute.Key(key))
		return key == "" || v.String() == value
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			if has(p.Attributes) {
				n += p.Value
			}
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			if has(p.Attributes) {
				n += int64(p.Count) //nolint:gosec // few
			}
		}
	}
	return n
}

// TestMetricsOfARunCountEveryOrder includes an order that no handler processes.
func TestMetricsOfARunCountEveryOrder(t *testing.T) {
	t.Parallel()
	s := openShop(t, redistest.Shared(t).Client(t))
	s.order(t, "o-1", "tea")
	s.order(t, "o-2", "")
	s.order(t, "o-3", "milk")
	s.await(t, "process order-events", 2)
	var got map[string]metricdata.Metrics
	redistest.Eventually(t, "the metrics of what is done behind the last span", func() bool {
		got = s.metrics(t)
		return sum(got["luatx.stream.dead_letters"], "", "") == 1 && sum(got["luatx.relay.events"], "", "") == 2
	})
	for _, test := range []struct {
		name, unit, key, value string
		want                   int64
	}{
		{"messaging.client.sent.messages", "{message}", "messaging.destination.name", "orders", 3},
		{"messaging.client.sent.messages", "{message}", "messaging.destination.name", "order-events", 2},
		{"messaging.client.consumed.messages", "{message}", "messaging.destination.name", "orders", 3},
		{"messaging.client.consumed.messages", "{message}", "messaging.consumer.group.name", "shipping", 2},
		{"messaging.client.operation.duration", "s", "messaging.destination.name", "orders", 3},
		{"messaging.process.duration", "s", "luatx.handler", "place-order", 3},
		{"messaging.process.duration", "s", "error.type", "", 5 - 1},
		{"messaging.process.duration", "s", "luatx.handler", "ship", 2},
		{"luatx.commit.duration", "s", "luatx.outcome", "committed", 4},
		{"luatx.commit.events", "{event}", "", "", 2},
		{"luatx.relay.events", "{event}", "luatx.state", "sent", 2},
		{"luatx.stream.dead_letters", "{message}", "messaging.destination.name", "orders", 1},
	} {
		if n := sum(got[test.name], test.key, test.value); n != test.want || got[test.name].Unit != test.unit {
			t.Errorf("%s{%s=%q} is %d in %q, want %d in %q", test.name, test.key, test.value, n, got[test.name].Unit, test.want, test.unit)
		}
	}
	for name, spans := range s.await(t, "process orders", 3) {
		for _, span := range spans {
			if bad := attr(span, "messaging.message.id") == "cmd-o-2" && name == "process orders"; bad != (span.Status.Code == codes.Error) {
				t.Errorf("%s of %s: %+v", name, attr(span, "messaging.message.id"), span.Status)
			}
		}
	}
}
