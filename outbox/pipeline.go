package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/mark"
	"github.com/luatx/luatx/internal/msgpack"
	"github.com/luatx/luatx/message"
)

// PipelineConfig configures PipelineMiddleware.
type PipelineConfig struct {
	// Stream is the key that events are added to. Required, unless StreamFor is set.
	Stream string
	// StreamFor names the stream by the handler's input: on a cluster it must share the slot of the keys that
	// the handler writes, or go-redis refuses the transaction. Defaults to Stream.
	StreamFor func(input *message.Message) (string, error)
	// Destination names where an output is to be published, for outputs that do not say so themselves.
	Destination func(*message.Message) (string, error)
	// MarshalFunc makes the fields of an entry. Defaults to JSON; MessagePack is smaller. The subscriber of
	// stream.NewOutboxSubscriber reads either. The data is encoded already if the handler runs in an Engine with a Marshaler
	// other than message.JSONMarshaler.
	MarshalFunc func(*message.Message) (map[string]any, error)
}

// PipelineMiddleware adds the outputs of the handler to a stream, in the pipeline that luatx.PipelineMiddleware
// executes: they are there when the handler's writes are, and not else. They are not passed on: a
// stream.NewOutboxSubscriber reads them.
//
// It has the gap of the three-step way, which luatx.PipelineMiddleware describes: of a message that is lost there
// are no events, and of one that is applied twice there are two sets, with ids of their own. At most as many
// messages as the process works on at once are hit when it dies.
func PipelineMiddleware(cfg PipelineConfig) message.Middleware {
	if cfg.StreamFor == nil {
		cfg.StreamFor = func(*message.Message) (string, error) {
			if cfg.Stream == "" {
				return "", errors.New("outbox: PipelineConfig.Stream is empty: name the stream that takes the events")
			}
			return cfg.Stream, nil
		}
	}
	if cfg.MarshalFunc == nil {
		cfg.MarshalFunc = JSON
	}
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			if _, scripted := luatx.TxFromContext(ctx); scripted {
				return nil, errors.New("outbox: PipelineMiddleware inside luatx.Middleware: replace it by outbox.Middleware")
			}
			pipe, ok := luatx.PipelineFromContext(ctx)
			if !ok {
				return nil, errors.New("outbox: no pipeline in context (PipelineMiddleware required)")
			}
			if mark.In(ctx, mark.Outbox) {
				return nil, errors.New("outbox: outbox.PipelineMiddleware inside outbox.PipelineMiddleware: leave one out")
			}
			stream, err := cfg.StreamFor(msg)
			if err != nil {
				return nil, err
			}
			outputs, err := next(mark.With(ctx, mark.Outbox), msg)
			if err != nil {
				return nil, err
			}
			for i, output := range outputs {
				if err := cfg.add(ctx, pipe, stream, output); err != nil {
					return nil, fmt.Errorf("outbox: output %d: %w", i, err)
				}
			}
			return nil, nil
		}
	}, message.Traits{Name: "outbox.PipelineMiddleware", Outbox: true})
}

func (cfg PipelineConfig) add(ctx context.Context, pipe redis.Pipeliner, stream string, output *message.Message) error {
	output, err := message.EncodeOutput(ctx, output)
	if err != nil {
		return err
	}
	event := message.New(output.Data, output.Attributes.Clone(), nil)
	if event.ID() == "" {
		event.Attributes[message.AttrID] = message.NewID()
	}
	if err := direct(event, cfg.Destination); err != nil {
		return err
	}
	values, err := cfg.MarshalFunc(event)
	if err != nil {
		return fmt.Errorf("marshal: %w", err)
	}
	return pipe.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: values}).Err()
}

// JSON makes the fields of an entry: type, source and destination, for those who look into the stream; data, as it is
// or in its content type; and attributes, a JSON object of all of them.
func JSON(event *message.Message) (map[string]any, error) {
	data, err := entryData(event)
	if err != nil {
		return nil, err
	}
	attributes, err := message.JSONMarshaler{}.Marshal(event.Attributes)
	if err != nil {
		return nil, err
	}
	values := map[string]any{
		"type":        event.Type(),
		"source":      event.Attributes.Source(),
		"destination": event.Destination(),
		"attributes":  attributes,
	}
	if data != nil {
		values["data"] = data
	}
	return values, nil
}

// MessagePack makes the fields of an entry: attributes, a MessagePack map of all of them, and data, as it is or in its
// content type. Times keep their nanoseconds and lose their zone. Errors wrap message.ErrEncode.
func MessagePack(event *message.Message) (map[string]any, error) {
	data, err := entryData(event)
	if err != nil {
		return nil, err
	}
	attributes, err := msgpack.AppendMap(nil, event.Attributes)
	if err != nil {
		return nil, fmt.Errorf("%w: attribute %w", message.ErrEncode, err)
	}
	values := map[string]any{"attributes": attributes}
	if data != nil {
		values["data"] = data
	}
	return values, nil
}

// entryData is the data as its content type says, the same bytes that an event of the scripted mode carries.
func entryData(event *message.Message) ([]byte, error) {
	switch data := event.Data.(type) {
	case nil:
		return nil, nil
	case []byte:
		return data, nil
	case json.RawMessage:
		return data, nil
	}
	body, err := Encode(message.New(event.Data, message.Attributes{
		message.AttrID: "data", message.AttrSource: "data", message.AttrType: "data",
		message.AttrDataContentType: event.Attributes.DataContentType(),
	}, nil))
	if err != nil {
		return nil, err
	}
	raw, err := Decode(body)
	if err != nil {
		return nil, err
	}
	return raw.Data, nil
}
