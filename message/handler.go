package message

import (
	"context"
	"reflect"
)

// ProcessFunc handles a message and returns the messages that follow from it.
type ProcessFunc func(ctx context.Context, msg *Message) ([]*Message, error)

// Handler handles the messages of one event type.
type Handler interface {
	// EventType is the type of the messages it takes; empty means every type.
	EventType() string
	// NewInput returns a pointer to a new value that encoded data is decoded into.
	// The decoded message's data is that pointer.
	NewInput() any
	// Handle handles a message and returns the messages that follow from it.
	Handle(ctx context.Context, msg *Message) ([]*Message, error)
}

// NewHandler makes a Handler from a function. It takes messages whose type is the name of T, by the first naming given,
// DottedNaming without one; Named sets a fixed type. Data that is a []byte or json.RawMessage is decoded from JSON
// where T is something else, and no data is the zero T; what cannot be decoded is a permanent error wrapping ErrDecode.
func NewHandler[T any](fn func(ctx context.Context, msg *TypedMessage[T]) ([]*Message, error), naming ...Naming) Handler {
	return &typedHandler[T]{fn: fn, eventType: pick(naming)(reflect.TypeFor[T]())}
}

type typedHandler[T any] struct {
	eventType string
	fn        func(context.Context, *TypedMessage[T]) ([]*Message, error)
}

func (h *typedHandler[T]) EventType() string { return h.eventType }
func (h *typedHandler[T]) NewInput() any     { return new(T) }

func (h *typedHandler[T]) Handle(ctx context.Context, msg *Message) ([]*Message, error) {
	data, err := dataAs[T](msg)
	if err != nil {
		return nil, err
	}
	return h.fn(ctx, Copy(msg, data))
}
