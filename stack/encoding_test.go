package stack_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stack"
	"github.com/luatx/luatx/stream"
)

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

type bought struct{ Pence int }

// emitted runs a handler in an Engine with gobMarshaler, in one of the modes, and returns the event that it stores.
func emitted(t *testing.T, client redis.UniversalClient, mode string, marshal func(*message.Message) (map[string]any, error)) *message.RawMessage {
	t.Helper()
	ctx := redistest.Soon(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: redistest.Namespace(t)})
	redistest.Must(t, err)
	prefix := redistest.Tag(t)
	cfg := stack.Config{
		OutboxStream: prefix + "out", OutboxMarshal: marshal, RelayElsewhere: true,
		MarkKey: func(id message.Identity) string { return prefix + id.Source + id.ID },
	}
	mw, err := stack.Scripted(tr, cfg)
	if mode == "pipelined" {
		mw, err = stack.Pipelined(client, cfg)
	}
	redistest.Must(t, err)
	engine := message.NewEngine(message.EngineConfig{Marshaler: gobMarshaler{}})
	redistest.Must(t, engine.Router().Use(mw))
	redistest.Must(t, engine.AddHandler("buy", nil, message.NewCommandHandler(func(_ context.Context, cmd bought) ([]bought, error) {
		return []bought{cmd}, nil
	}, message.CommandHandlerConfig{Source: "/shop"})))
	data, err := gobMarshaler{}.Marshal(bought{7})
	redistest.Must(t, err)
	_, err = engine.Process(ctx, message.NewRaw(data, message.Attributes{"id": "1", "source": "/s", "type": "bought", "subject": "a"}, nil))
	redistest.Must(t, err)
	if mode == "pipelined" {
		sub, err := stream.NewOutboxSubscriber(client, stream.SubscriberConfig{Stream: cfg.OutboxStream, BlockTimeout: 20 * time.Millisecond})
		redistest.Must(t, err)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		events, err := sub.Subscribe(ctx)
		redistest.Must(t, err)
		event := <-events
		event.Ack()
		return event
	}
	events := make(chan *message.RawMessage, 1)
	publish, err := relay.New(tr, relay.Func(func(_ context.Context, event *message.RawMessage) error {
		events <- event
		return nil
	}, relay.FuncConfig{}), relay.Config{SweepInterval: 50 * time.Millisecond})
	redistest.Must(t, err)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- publish.Run(ctx) }()
	event := <-events
	cancel()
	redistest.Must(t, <-done)
	return event
}

func TestOutboxEncodesByMarshalerOfEngineInBothModes(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for _, mode := range []string{"pipelined", "scripted"} {
			event := emitted(t, client, mode, nil)
			var got bought
			if err := (gobMarshaler{}).Unmarshal(event.Data, &got); err != nil || got.Pence != 7 || event.DataContentType() != "application/x-gob" {
				t.Errorf("%s: %q of type %q, error %v", mode, event.Data, event.DataContentType(), err)
			}
		}
	})
}

func TestOutboxMarshalCreatesTheSameEventInBothModes(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for name, marshal := range map[string]func(*message.Message) (map[string]any, error){
			"MessagePack": outbox.MessagePack,
			"own": func(event *message.Message) (map[string]any, error) {
				event.Attributes["dataschema"] = "urn:v2"
				values, err := outbox.JSON(event)
				if err == nil {
					values["data"] = fmt.Appendf(nil, "sealed %d", len(values["data"].([]byte)))
				}
				return values, err
			},
		} {
			pipelined, scripted := emitted(t, client, "pipelined", marshal), emitted(t, client, "scripted", marshal)
			if !bytes.Equal(pipelined.Data, scripted.Data) || len(scripted.Data) == 0 || pipelined.DataSchema() != scripted.DataSchema() ||
				pipelined.DataContentType() != scripted.DataContentType() || pipelined.Type() != scripted.Type() {
				t.Errorf("%s: pipelined %q %v, scripted %q %v", name, pipelined.Data, pipelined.Attributes, scripted.Data, scripted.Attributes)
			}
		}
	})
}
