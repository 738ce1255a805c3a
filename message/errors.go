package message

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNacked is the reason of a nack without a reason.
	ErrNacked = errors.New("message: nacked without a reason")
	// ErrNoHandler is returned if no handler of the Router takes the message.
	ErrNoHandler = errors.New("message: no handler takes the message")
	// ErrExpired is returned, as a permanent error, if a message reaches its handler after its ExpiryTime.
	ErrExpired = errors.New("message: the message has expired")
	// ErrNoInput is returned if a raw input of the Engine does not take the message.
	ErrNoInput = errors.New("message: the raw input does not take the message")
	// ErrNoOutput is returned if no raw output of the Engine takes the message.
	ErrNoOutput = errors.New("message: no raw output takes the message")
	// ErrDecode is returned if a message or its data cannot be decoded.
	ErrDecode = errors.New("message: cannot decode")
	// ErrEncode is returned if a message or its data cannot be encoded.
	ErrEncode = errors.New("message: cannot encode")
	// ErrStarted is returned if the Router or Engine already runs and can no longer be changed or started.
	ErrStarted = errors.New("message: already started")
	// ErrStopped is returned if a Pipe or an Engine stopped before a message was handled or an output was read.
	ErrStopped = errors.New("message: stopped")
)

// PanicError is the error for a panic of a handler, a middleware or a callback.
type PanicError struct {
	// Value is the value of the panic.
	Value any
	// Stack is the stack of the goroutine at the panic.
	Stack []byte
}

// Error returns the panic's value without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("message: panic: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Permanent marks an error as one that a redelivery cannot fix. A nil error stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent reports whether err is permanent, so that delivering the message again is useless.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// RetryAfter returns an error for a nack that asks the source to deliver the message again no sooner than d from now. A nil error
// stays nil, and a negative d counts as zero.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryError{err, max(d, 0)}
}

// RetryDelay returns the delay after which the message should be delivered again. It returns false if err requests none.
func RetryDelay(err error) (time.Duration, bool) {
	if r, ok := errors.AsType[*retryError](err); ok {
		return r.delay, true
	}
	return 0, false
}

type retryError struct {
	err   error
	delay time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }
