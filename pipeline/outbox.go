package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/mark"
	"github.com/luatx/luatx/internal/outboxentry"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// OutboxConfig configures Outbox.
type OutboxConfig struct {
	// Stream is the key of the stream that events are added to. Required unless StreamFor is set.
	Stream string
	// StreamFor returns the stream's key for the handler's input. On a cluster, the key must share the slot of the keys that the
	// handler writes; otherwise go-redis rejects the transaction. Defaults to Stream.
	StreamFor func(input *message.Message) (string, error)
	// Destination returns the destination of an output that has none.
	Destination func(*message.Message) (string, error)
	// MarshalFunc returns the fields of an entry. Defaults to outbox.JSON; outbox.MessagePack is smaller. The subscriber of
	// stream.NewOutboxSubscriber reads both. The data is already encoded if the handler runs in an Engine with a Marshaler other
	// than message.JSONMarshaler.
	MarshalFunc func(*message.Message) (map[string]any, error)
}

// Outbox adds the outputs of the handler to a stream in the MULTI … EXEC of Middleware, so that the events are stored if and only
// if the handler's writes are. It does not pass the outputs on; read them with stream.NewOutboxSubscriber.
//
// Outbox has the gaps of pipeline mode: a lost message has no events, and a message that is applied twice has two sets of events
// with different ids.
func Outbox(cfg OutboxConfig) message.Middleware {
	if cfg.StreamFor == nil {
		cfg.StreamFor = func(*message.Message) (string, error) {
			if cfg.Stream == "" {
				return "", errors.New("pipeline: OutboxConfig.Stream is empty; set the stream of the events")
			}
			return cfg.Stream, nil
		}
	}
	if cfg.MarshalFunc == nil {
		cfg.MarshalFunc = outbox.JSON
	}
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			if _, scripted := luatx.TxFromContext(ctx); scripted {
				return nil, errors.New("pipeline: pipeline.Outbox inside luatx.Middleware; replace it by outbox.Middleware")
			}
			pipe, ok := luatx.PipelineFromContext(ctx)
			if !ok {
				return nil, errors.New("pipeline: no pipeline in context; put pipeline.Middleware before pipeline.Outbox")
			}
			if mark.In(ctx, mark.Outbox) {
				return nil, errors.New("pipeline: pipeline.Outbox inside pipeline.Outbox; leave one out")
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
					return nil, fmt.Errorf("pipeline: output %d: %w", i, err)
				}
			}
			return nil, nil
		}
	}, message.Traits{Name: "pipeline.Outbox", Outbox: true})
}

func (cfg OutboxConfig) add(ctx context.Context, pipe redis.Pipeliner, stream string, output *message.Message) error {
	output, err := message.EncodeOutput(ctx, output)
	if err != nil {
		return err
	}
	event := message.New(output.Data, maps.Clone(output.Attributes), nil)
	if event.ID() == "" {
		event.Attributes[message.AttrID] = message.NewID()
	}
	if err := outboxentry.Direct(event, cfg.Destination); err != nil {
		return err
	}
	values, err := cfg.MarshalFunc(event)
	if err != nil {
		return fmt.Errorf("marshal: %w", err)
	}
	return pipe.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: values}).Err()
}
