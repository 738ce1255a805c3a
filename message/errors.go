package message

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNacked is the reason of a nack that gave none.
	ErrNacked = errors.New("message: nacked without a reason")
	// ErrNoHandler says that no handler of the Router takes the message.
	ErrNoHandler = errors.New("message: no handler takes the message")
	// ErrNoInput says that a raw input of the Engine does not take the message.
	ErrNoInput = errors.New("message: the raw input does not take the message")
	// ErrNoOutput says that no raw output of the Engine takes the message.
	ErrNoOutput = errors.New("message: no raw output takes the message")
	// ErrDecode says that a message or its data cannot be decoded.
	ErrDecode = errors.New("message: cannot decode")
	// ErrEncode says that a message or its data cannot be encoded.
	ErrEncode = errors.New("message: cannot encode")
	// ErrStarted says that something was added to, or started on, what runs already.
	ErrStarted = errors.New("message: already started")
	// ErrStopped says that a Pipe or an Engine stopped before a message was handled or an output was read.
	ErrStopped = errors.New("message: stopped")
)

// PanicError is a panic of a handler, a middleware or a callback, as an error.
type PanicError struct {
	// Value is what the code panicked with.
	Value any
	// Stack is the stack of the goroutine at the panic.
	Stack []byte
}

// Error returns the panic's value without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("message: panic: %v", e.Value) }

// Unwrap returns the value where it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Permanent marks an error as one that another delivery cannot mend. A nil error stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent says whether delivering the message again is useless.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// RetryAfter makes a nack with err ask its source for redelivery no sooner than d from now. A nil error stays nil,
// a negative d counts as zero.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryError{err, max(d, 0)}
}

// RetryDelay returns how long after now the message should be delivered again; false where err asks for nothing.
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
