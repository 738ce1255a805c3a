package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/mark"
	"github.com/luatx/luatx/internal/outboxentry"
	"github.com/luatx/luatx/message"
)

// Config configures Middleware. The zero value is usable.
type Config struct {
	// Destination returns the destination of an output that has none. Defaults to none: the relay's Publisher decides.
	Destination func(*message.Message) (string, error)
	// OrderingKey returns the ordering key of an output. Events with the same key and shard are published one after the
	// other in the order of their commits. An event with an empty key waits for no other. Defaults to none; see ByPartitionKey.
	OrderingKey func(*message.Message) (string, error)
	// At returns the earliest time at which an output may be published, by the server's clock. A scheduled event has no ordering
	// key. The zero time publishes the event at once. Defaults to the zero time.
	At func(*message.Message) (time.Time, error)
	// MarshalFunc returns the fields of an event, like PipelineConfig.MarshalFunc, so that one function serves both modes. The
	// event is the message that stream.UnmarshalOutbox decodes from the fields. Defaults to the data as the Engine's Marshaler
	// encodes it, or to JSON outside of an Engine.
	MarshalFunc func(*message.Message) (map[string]any, error)
}

// ByPartitionKey returns the attribute partitionkey of an event. Use it as Config.OrderingKey.
func ByPartitionKey(event *message.Message) (string, error) { return event.PartitionKey(), nil }

// Middleware converts the outputs of the handler into events of the surrounding transaction and does not pass them on. A relay
// publishes the events after the commit. An output without an id gets one that is derived from the input and the output's
// position, so that a replay creates the same event.
func Middleware(cfg Config) message.Middleware {
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			tx, ok := luatx.TxFromContext(ctx)
			if !ok {
				return nil, misplaced(ctx)
			}
			if mark.In(ctx, mark.Outbox) {
				return nil, errors.New("outbox: outbox.Middleware inside outbox.Middleware; leave one out")
			}
			outputs, err := next(mark.With(ctx, mark.Outbox), msg)
			if err != nil {
				return nil, err
			}
			for i, output := range outputs {
				if err := cfg.emit(ctx, tx, output); err != nil {
					return nil, fmt.Errorf("outbox: output %d: %w", i, err)
				}
			}
			return nil, nil
		}
	}, message.Traits{Name: "outbox.Middleware", Outbox: true})
}

// misplaced returns the error for a missing transaction.
func misplaced(ctx context.Context) error {
	if _, ok := luatx.PipelineFromContext(ctx); ok {
		return errors.New("outbox: outbox.Middleware inside pipeline.Middleware; replace outbox.Middleware by pipeline.Outbox, or pipeline.Middleware by luatx.Middleware")
	}
	return errors.New("outbox: no transaction in context; put luatx.Middleware before outbox.Middleware")
}

func (cfg Config) emit(ctx context.Context, tx *luatx.Tx, output *message.Message) error {
	event, err := cfg.event(ctx, output, tx.EventID)
	if err != nil {
		return err
	}
	return tx.Emit(event)
}

// event returns the event of an output. If the output has no id, the event gets the result of id.
func (cfg Config) event(ctx context.Context, output *message.Message, id func() string) (luatx.Event, error) {
	output, err := message.EncodeOutput(ctx, output)
	if err != nil {
		return luatx.Event{}, err
	}
	if cfg.Destination == nil && cfg.OrderingKey == nil && cfg.At == nil && cfg.MarshalFunc == nil {
		return plainEvent(output, id), nil
	}
	msg := message.New(output.Data, maps.Clone(output.Attributes), nil)
	if msg.ID() == "" {
		msg.Attributes[message.AttrID] = id()
	}
	if err := outboxentry.Direct(msg, cfg.Destination); err != nil {
		return luatx.Event{}, err
	}
	event := luatx.Event{ID: msg.ID(), Data: msg.Data, Attributes: msg.Attributes}
	if cfg.OrderingKey != nil {
		if event.Key, err = cfg.OrderingKey(msg); err != nil {
			return luatx.Event{}, fmt.Errorf("ordering key: %w", err)
		}
	}
	if cfg.At != nil {
		if event.At, err = cfg.At(msg); err != nil {
			return luatx.Event{}, fmt.Errorf("at: %w", err)
		}
	}
	if cfg.MarshalFunc != nil {
		err = cfg.marshal(&event, msg)
	}
	return event, err
}

// marshal sets the event to the message that MarshalFunc's fields describe.
func (cfg Config) marshal(event *luatx.Event, msg *message.Message) error {
	values, err := cfg.MarshalFunc(msg)
	if err != nil {
		return fmt.Errorf("marshal: %w", err)
	}
	raw, err := outboxentry.Decode(values)
	if err != nil {
		return fmt.Errorf("marshal: the fields of Config.MarshalFunc: %w", err)
	}
	if raw.ID() != msg.ID() {
		return fmt.Errorf("marshal: Config.MarshalFunc returned the id %q for event %q; keep the id", raw.ID(), msg.ID())
	}
	event.Data, event.Attributes = raw.Data, raw.Attributes
	return nil
}

// plainEvent is event for a Config without options. It needs no copy of the message, because no function sees the message with
// its id.
func plainEvent(output *message.Message, id func() string) luatx.Event {
	event := luatx.Event{ID: output.ID(), Data: output.Data, Attributes: output.Attributes}
	if event.ID == "" {
		event.ID = id()
	}
	return event
}
