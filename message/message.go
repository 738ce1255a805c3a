package message

import (
	"crypto/rand"
	"maps"
	"sync/atomic"
)

// TypedMessage is data of type T with its CloudEvents attributes and the means to acknowledge it.
// It must not be copied by value; use Copy. Settling it is safe from several goroutines at once,
// writing to its fields, WithValue apart, is not.
type TypedMessage[T any] struct {
	// Data is the payload.
	Data T
	// Attributes are the CloudEvents attributes. Their methods, such as ID and Type, are the message's as well.
	Attributes

	acking *Acking
	values atomic.Pointer[valueNode]
}

// Message is what a handler is given and returns: data of any type.
type Message = TypedMessage[any]

// RawMessage is a message whose data is still, or again, encoded.
type RawMessage = TypedMessage[[]byte]

// New makes a message. Nil attributes become empty ones; a nil acking makes a message that cannot be settled.
func New(data any, attrs Attributes, acking *Acking) *Message {
	return NewTyped(data, attrs, acking)
}

// NewTyped makes a message with data of type T, as New does.
func NewTyped[T any](data T, attrs Attributes, acking *Acking) *TypedMessage[T] {
	if attrs == nil {
		attrs = Attributes{}
	}
	return &TypedMessage[T]{Data: data, Attributes: attrs, acking: acking.join()}
}

// NewRaw makes a message with encoded data, as New does.
func NewRaw(data []byte, attrs Attributes, acking *Acking) *RawMessage {
	return NewTyped(data, attrs, acking)
}

// Copy makes a message with other data. The attributes are cloned; the acking and the in-process values are shared,
// so settling either message settles both.
func Copy[In, Out any](msg *TypedMessage[In], data Out) *TypedMessage[Out] {
	out := NewTyped(data, maps.Clone(msg.Attributes), nil)
	out.acking = msg.acking
	out.values.Store(msg.values.Load())
	return out
}

// NewID returns a random id of 26 letters and digits, for messages that are published with no id of their own.
func NewID() string { return rand.Text() }

// Ack acknowledges the message at its source. It reports whether this call settled it:
// false where it was settled before or has no acking.
func (m *TypedMessage[T]) Ack() bool { return m.acking.settle(acked, nil) }

// Nack gives the message back to its source with the reason; see Permanent and RetryAfter for what a reason can ask for.
// It reports whether this call settled it.
func (m *TypedMessage[T]) Nack(err error) bool { return m.acking.settle(nacked, err) }

// Release settles the message with neither ack nor nack: for a consumer that has lost its entry to another one.
// It reports whether this call settled it.
func (m *TypedMessage[T]) Release() bool { return m.acking.settle(released, nil) }

// Acknowledged settles the message as acked without telling its source, which has been told already: inside a commit.
// It reports whether this call settled it.
func (m *TypedMessage[T]) Acknowledged() bool { return m.acking.settle(acknowledged, nil) }

// Settled returns a channel that is closed once the message is settled and its source has been told.
// It is nil, and so blocks for ever, for a message without acking.
func (m *TypedMessage[T]) Settled() <-chan struct{} { return m.acking.settled() }

// Err returns what the message was nacked with, nil before that and after any other settlement.
// A Nack with a nil error counts as ErrNacked.
func (m *TypedMessage[T]) Err() error { return m.acking.reason() }

// InputSource returns where the message was read; false where that is unknown or the acking is a shared one.
func (m *TypedMessage[T]) InputSource() (Source, bool) { return m.acking.source() }

// SetAcking replaces the acking; the former one is not settled by it. Call it before others get the message.
func (m *TypedMessage[T]) SetAcking(acking *Acking) { m.acking = acking.join() }
