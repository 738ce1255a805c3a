package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/mark"
	"github.com/luatx/luatx/message"
)

// Config configures Middleware. Its zero value works.
type Config struct {
	// Destination names where an output is to be published, for outputs that do not say so themselves.
	// Defaults to none: the relay's Publisher decides.
	Destination func(*message.Message) (string, error)
}

// Middleware turns the outputs of the handler into events of the transaction around it. They are not passed on:
// a relay publishes them once they are committed. An output without an id is given one that is derived from
// the input and its position, so that a replay makes the same event.
func Middleware(cfg Config) message.Middleware {
	return func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			tx, ok := luatx.TxFromContext(ctx)
			if !ok {
				return nil, misplaced(ctx)
			}
			if mark.In(ctx, mark.Outbox) {
				return nil, errors.New("outbox: outbox.Middleware inside outbox.Middleware: leave one out")
			}
			outputs, err := next(mark.With(ctx, mark.Outbox), msg)
			if err != nil {
				return nil, err
			}
			for i, output := range outputs {
				if err := emit(tx, output, cfg.Destination); err != nil {
					return nil, fmt.Errorf("outbox: output %d: %w", i, err)
				}
			}
			return nil, nil
		}
	}
}

// misplaced says what to do about a stack without a transaction around.
func misplaced(ctx context.Context) error {
	if _, ok := luatx.PipelineFromContext(ctx); ok {
		return errors.New("outbox: outbox.Middleware inside luatx.PipelineMiddleware: replace it by outbox.PipelineMiddleware, or PipelineMiddleware by luatx.Middleware")
	}
	return errors.New("outbox: no transaction in context: put luatx.Middleware before outbox.Middleware")
}

func emit(tx *luatx.Tx, output *message.Message, destination func(*message.Message) (string, error)) error {
	event := message.New(output.Data, output.Attributes.Clone(), nil)
	if event.ID() == "" {
		event.Attributes[message.AttrID] = tx.EventID()
	}
	if err := direct(event, destination); err != nil {
		return err
	}
	body, err := Encode(event)
	if err != nil {
		return err
	}
	return tx.Emit(luatx.Event{ID: event.ID(), Body: body})
}

// direct gives an event its destination where it has none.
func direct(event *message.Message, destination func(*message.Message) (string, error)) error {
	if destination == nil || event.Destination() != "" {
		return nil
	}
	name, err := destination(event)
	if err != nil {
		return fmt.Errorf("destination: %w", err)
	}
	if name != "" {
		event.Attributes[message.AttrDestination] = name
	}
	return nil
}
