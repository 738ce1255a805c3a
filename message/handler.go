package message

import (
	"context"
	"reflect"
)

// ProcessFunc handles a message and returns the messages that follow from it.
type ProcessFunc func(ctx context.Context, msg *Message) ([]*Message, error)

// Handler handles the messages of one event type.
type Handler interface {
	// EventType returns the type of the messages that it handles. Empty means every type.
	EventType() string
	// NewInput returns a pointer to a new value into which encoded data is decoded. The data of the decoded message is that
	// pointer.
	NewInput() any
	// Handle handles a message and returns the messages that follow from it.
	Handle(ctx context.Context, msg *Message) ([]*Message, error)
}

// NewHandler returns a Handler for a function. It handles messages whose type is the name of T by the first naming given, or by
// DottedNaming. Use Named for a fixed type. If T is another type, data that is a []byte or json.RawMessage is decoded from JSON;
// no data becomes the zero T. If the data cannot be decoded, the handler returns a permanent error that wraps ErrDecode.
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
