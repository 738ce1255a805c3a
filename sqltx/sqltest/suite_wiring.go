package sqltest

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
)

// testWiring checks that neither an Engine nor a Router loses what the outbox or the inbox has committed.
func testWiring(t *testing.T, s *suite) {
	s.emit(t, "", "a")
	for name, add := range map[string]func(context.Context, *message.Engine, *sqltx.OutboxPublisher) error{
		"AddSubscriber": func(_ context.Context, engine *message.Engine, p *sqltx.OutboxPublisher) error {
			return engine.AddSubscriber("outbox", nil, p)
		},
		"AddRawInput": func(ctx context.Context, engine *message.Engine, p *sqltx.OutboxPublisher) error {
			events, err := p.Source(ctx)
			return errors.Join(err, engine.AddRawInput("outbox", nil, events))
		},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		p := s.publisher(func(c *sqltx.OutboxPublisherConfig) { c.Attempts = 1 })
		engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{ErrorHandler: func(context.Context, *message.Message, error) {}}})
		out, err := engine.AddRawOutput("destination", nil)
		err = errors.Join(err, add(ctx, engine, p), engine.AddHandler("forward", nil,
			message.NewHandler(func(_ context.Context, msg *message.TypedMessage[any]) ([]*message.Message, error) {
				return []*message.Message{message.New(msg.Data, maps.Clone(msg.Attributes), nil)}, nil
			})))
		must(t, err)
		go func() {
			for event := range out {
				event.Nack(errors.New("the destination rejects it"))
				cancel() // the event is lost by now
			}
		}()
		wantUnsafe(t, name, engine.Run(ctx), "AckForward")
		cancel()
		p.Wait()
		s.wantRows(t, 1, s.outbox, "published = FALSE", "parked = FALSE")
	}

	for _, hidden := range []bool{false, true} {
		mw := message.Chain(s.tx(), sqltx.InboxMiddleware(s.inboxConfig()))
		if hidden {
			mw = message.NewMiddleware(mw.Wrap)
		}
		router := message.NewRouter(message.PipeConfig{AckStrategy: message.AckForward})
		err := errors.Join(router.Use(mw), router.AddHandler("place-order", nil, orderHandler(func(ctx context.Context, order string) ([]string, error) {
			return []string{"e"}, s.enter(ctx, order)
		})))
		must(t, err)
		msg, _ := order("1")
		_, err = router.Process(t.Context(), msg)
		wantUnsafe(t, "AckForward", err, "add an outbox")
		if n := s.rows(t, s.business) + s.rows(t, s.inbox); n != 0 {
			t.Errorf("hidden %t: %d rows were committed", hidden, n)
		}
	}
}

func wantUnsafe(t *testing.T, name string, err error, remedy string) {
	t.Helper()
	if _, ok := errors.AsType[*message.WiringError](err); !ok || !strings.Contains(err.Error(), remedy) {
		t.Errorf("%s: got error %v, want a *message.WiringError and %q", name, err, remedy)
	}
}

// gobMarshaler is a Marshaler that is not JSON.
type gobMarshaler struct{}

func (gobMarshaler) Marshal(v any) ([]byte, error) {
	var w bytes.Buffer
	err := gob.NewEncoder(&w).Encode(v)
	return w.Bytes(), err
}

func (gobMarshaler) Unmarshal(data []byte, v any) error {
	return gob.NewDecoder(bytes.NewReader(data)).Decode(v)
}

func (gobMarshaler) ContentType() string { return "application/x-gob" }

// testMarshaler checks that the outbox encodes events by the Marshaler of the Engine.
func testMarshaler(t *testing.T, s *suite) {
	engine := message.NewEngine(message.EngineConfig{Marshaler: gobMarshaler{}})
	data, err := gobMarshaler{}.Marshal(placeOrder{"1"})
	err = errors.Join(err,
		engine.Router().Use(s.tx(), sqltx.OutboxMiddleware(s.outboxConfig())),
		engine.AddHandler("place-order", nil, orderHandler(func(context.Context, string) ([]string, error) { return []string{"placed"}, nil })))
	must(t, err)
	in := message.NewRaw(data, message.Attributes{message.AttrID: "1", message.AttrSource: "/shop", message.AttrType: "place.order"}, nil)
	if _, err := engine.Process(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	event := receive(t, s.source(t, s.publisher()))
	defer event.Ack()
	var got orderPlaced
	if err := (gobMarshaler{}).Unmarshal(event.Data, &got); err != nil || got.Name != "placed" || event.DataContentType() != "application/x-gob" {
		t.Errorf("%q of type %q, error %v", event.Data, event.DataContentType(), err)
	}
}
