package message

import (
	"crypto/rand"
	"maps"
	"sync/atomic"
)

// TypedMessage is data of type T with its CloudEvents attributes and an acking. Do not copy it by value; use Copy. Several
// goroutines may settle it and call WithValue at the same time, but not write to its fields.
type TypedMessage[T any] struct {
	// Data is the payload.
	Data T
	// Attributes are the CloudEvents attributes. Their methods, such as ID and Type, are also methods of the message.
	Attributes

	acking *Acking
	values atomic.Pointer[valueNode]
}

// Message is a message with data of any type, the input and output of handlers.
type Message = TypedMessage[any]

// RawMessage is a message with encoded data.
type RawMessage = TypedMessage[[]byte]

// New returns a message. Nil attributes become empty ones. A message with a nil acking cannot be settled.
func New(data any, attrs Attributes, acking *Acking) *Message {
	return NewTyped(data, attrs, acking)
}

// NewTyped returns a message with data of type T, like New.
func NewTyped[T any](data T, attrs Attributes, acking *Acking) *TypedMessage[T] {
	if attrs == nil {
		attrs = Attributes{}
	}
	msg := &TypedMessage[T]{Data: data, Attributes: attrs, acking: acking.join()}
	msg.acking.own(msg)
	return msg
}

// NewRaw returns a message with encoded data, like New.
func NewRaw(data []byte, attrs Attributes, acking *Acking) *RawMessage {
	return NewTyped(data, attrs, acking)
}

// Copy returns a message with other data. It clones the attributes, and shares the acking and the in-process values, so that
// settling either message settles both.
func Copy[In, Out any](msg *TypedMessage[In], data Out) *TypedMessage[Out] {
	out := NewTyped(data, maps.Clone(msg.Attributes), nil)
	out.acking = msg.acking
	out.values.Store(msg.values.Load())
	return out
}

// NewID returns a random id of 26 letters and digits, for messages that are published without an id.
func NewID() string { return rand.Text() }

// Ack acknowledges the message at its source. It reports whether this call settled the message. It returns false if the message
// was already settled or has no acking.
func (m *TypedMessage[T]) Ack() bool { return m.acking.settle(acked, nil) }

// Nack returns the message to its source with a reason, which Permanent and RetryAfter can qualify. It reports whether this call
// settled the message.
func (m *TypedMessage[T]) Nack(err error) bool { return m.acking.settle(nacked, err) }

// Release settles the message without an ack or a nack, for a consumer that has lost its entry to another one. It reports whether
// this call settled the message.
func (m *TypedMessage[T]) Release() bool { return m.acking.settle(released, nil) }

// Acknowledged settles the message as acked without notifying its source, because a commit has already done so. It reports
// whether this call settled the message.
func (m *TypedMessage[T]) Acknowledged() bool { return m.acking.settle(acknowledged, nil) }

// Settled returns a channel that is closed after the message is settled and its source was notified. For a message without an
// acking, the channel is nil and blocks forever.
func (m *TypedMessage[T]) Settled() <-chan struct{} { return m.acking.settled() }

// Err returns the error with which the message was nacked, or nil if it was not nacked. A Nack with a nil error counts as
// ErrNacked.
func (m *TypedMessage[T]) Err() error { return m.acking.reason() }

// InputSource returns where the message was read. It returns false if that is unknown or the acking is shared.
func (m *TypedMessage[T]) InputSource() (Source, bool) { return m.acking.source() }

// SetAcking replaces the acking without settling the previous one. Call it before others get the message.
func (m *TypedMessage[T]) SetAcking(acking *Acking) {
	m.acking = acking.join()
	m.acking.own(m)
}
