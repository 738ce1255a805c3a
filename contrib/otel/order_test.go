package otel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/contrib/otel"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stack"
	"github.com/luatx/luatx/stream"
)

func TestMain(m *testing.M) { redistest.Main(m) }

type recorder struct {
	*otel.Telemetry
	spans  *tracetest.InMemoryExporter
	tracer trace.TracerProvider
	reader *sdkmetric.ManualReader
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	r := &recorder{spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.spans))
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
	t.Cleanup(func() {
		redistest.Must(t, tracer.Shutdown(context.Background()))
		redistest.Must(t, meter.Shutdown(context.Background()))
	})
	telemetry, err := otel.New(otel.Config{TracerProvider: tracer, MeterProvider: meter, Destination: func(key string) string {
		return key[strings.LastIndex(key, ":")+1:] // without the prefix of the test
	}})
	redistest.Must(t, err)
	r.Telemetry, r.tracer = telemetry, tracer
	return r
}

func (r *recorder) metrics(t *testing.T) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	redistest.Must(t, r.reader.Collect(context.Background(), &all))
	byName := make(map[string]metricdata.Metrics)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// shop simulates two services on one server. Orders are placed in one, which notifies the other through its outbox.
type shop struct {
	*recorder
	out    relay.Publisher // of the producer
	prefix string
}

type (
	placeOrder  struct{ ID, Product string }
	orderPlaced struct{ ID string }
)

// openShop runs both services until the test ends.
func openShop(t *testing.T, client redis.UniversalClient) *shop {
	t.Helper()
	prefix := redistest.Namespace(t)
	s := &shop{recorder: newRecorder(t), prefix: prefix}
	space := luatx.Partitions(2).WithPrefix(prefix)
	streams, err := stream.NewPartitionedPublisher(client, space, stream.PublisherConfig{Stream: "orders"})
	redistest.Must(t, err)
	s.out = s.Publisher(relay.Streams(streams), otel.PublisherConfig{Destination: func(*message.RawMessage) string { return "orders" }})

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	run := func(f func() error) {
		running.Go(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}

	orders, err := luatx.New(client, luatx.Config{Namespace: prefix + "-orders", Keyspace: space, Observer: s.Transactor()})
	redistest.Must(t, err)
	events, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: "{" + prefix + "}:order-events"})
	redistest.Must(t, err)
	forward, err := relay.New(orders, s.Publisher(relay.Streams(events), otel.PublisherConfig{
		Destination: func(*message.RawMessage) string { return "order-events" },
	}), relay.Config{Observer: s.Relay()})
	redistest.Must(t, err)
	run(func() error { return forward.Run(ctx) })
	input, err := stream.NewPartitionedSubscriber(client, space, stream.PartitionedConfig{SubscriberConfig: stream.SubscriberConfig{
		Stream: "orders", Group: "orders", Observer: s.Subscriber(), BlockTimeout: 50 * time.Millisecond, MaxDeliveries: 2,
	}})
	redistest.Must(t, err)
	place := message.NewCommandHandler(func(ctx context.Context, cmd placeOrder) ([]orderPlaced, error) {
		if cmd.Product == "" {
			return nil, message.Permanent(errors.New("no product"))
		}
		return []orderPlaced{{cmd.ID}}, save(ctx, client, space, cmd)
	}, message.CommandHandlerConfig{Source: "/orders"})
	run(func() error { return input.Consume(ctx, orders, s.engine(t, orders, "place-order", place)) })

	shipping, err := luatx.New(client, luatx.Config{Namespace: prefix + "-shipping", Observer: s.Transactor(), Aggregate: func(*message.Message) (string, error) {
		return prefix, nil
	}})
	redistest.Must(t, err)
	follow, err := stream.NewSubscriber(client, stream.SubscriberConfig{
		Stream: "{" + prefix + "}:order-events", Group: "shipping", Observer: s.Subscriber(), BlockTimeout: 50 * time.Millisecond,
	})
	redistest.Must(t, err)
	ship := message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[orderPlaced]) ([]*message.Message, error) {
		return nil, luatx.CmdableFromContext(ctx, client).RPush(ctx, "{"+prefix+"}:to-ship", msg.Data.ID).Err()
	})
	run(func() error { return follow.Consume(ctx, shipping, s.engine(t, shipping, "ship", ship)) })
	redistest.Eventually(t, "the partitions to be held and the relay to take what is committed", func() bool {
		return input.Stats().Holding == 2 && link.Of(orders).Relay() != nil
	})
	return s
}

// save is an adapter that stores an order and counts orders.
func save(ctx context.Context, client redis.UniversalClient, space luatx.Keyspace, cmd placeOrder) error {
	key, err := space.Key(cmd.ID, "order")
	if err != nil {
		return err
	}
	return luatx.CmdableFromContext(ctx, client).HSet(ctx, key, "product", cmd.Product, "status", "placed").Err()
}

func (s *shop) engine(t *testing.T, tr *luatx.Transactor, name string, h message.Handler) *message.Engine {
	t.Helper()
	mw, err := stack.Scripted(tr, stack.Config{RelayElsewhere: true})
	redistest.Must(t, err)
	engine := message.NewEngine(message.EngineConfig{})
	redistest.Must(t, engine.Router().Use(s.Process(), mw, s.Outputs()))
	redistest.Must(t, engine.AddHandler(name, nil, h))
	return engine
}

// order simulates a customer who places an order in a separate span.
func (s *shop) order(t *testing.T, id, product string) {
	t.Helper()
	ctx, span := s.tracer.Tracer("test").Start(t.Context(), "POST /orders", trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	msg := message.NewRaw([]byte(fmt.Sprintf(`{"ID":%q,"Product":%q}`, id, product)),
		message.Attributes{"id": "cmd-" + id, "type": "place.order", "source": "/shop", "subject": id}, nil)
	redistest.Must(t, errors.Join(s.out.Publish(ctx, []*message.RawMessage{msg})...))
}

// await waits for n spans of a name, and returns all spans by name.
func (s *shop) await(t *testing.T, name string, n int) map[string][]tracetest.SpanStub {
	t.Helper()
	var byName map[string][]tracetest.SpanStub
	redistest.Eventually(t, fmt.Sprintf("%d spans %q", n, name), func() bool {
		byName = make(map[string][]tracetest.SpanStub)
		for _, span := range s.spans.GetSpans() {
			byName[span.Name] = append(byName[span.Name], span)
		}
		return len(byName[name]) >= n
	})
	return byName
}
