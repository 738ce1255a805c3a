// Package relay publishes committed events: inline, right after the commit in the process that committed, and
// cold, whatever has become due, by lease.
package relay

import (
	"context"
	"errors"

	"github.com/luatx/luatx/message"
)

// A Publisher sends events on. It is given a batch and answers for each event at the same index: nil, it was
// sent; an error made by Unavailable, the broker cannot be reached, which costs the event no attempt; an error
// made by message.Permanent, the event is parked at once; any other error, it was refused, which counts an
// attempt. A nil slice means that all were sent. The context ends before the events' lease does.
type Publisher interface {
	Publish(ctx context.Context, events []*message.RawMessage) []error
}

// PublisherFunc is a function as a Publisher.
type PublisherFunc func(ctx context.Context, events []*message.RawMessage) []error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, events []*message.RawMessage) []error {
	return f(ctx, events)
}

// ErrUnavailable is what the errors made by Unavailable are.
var ErrUnavailable = errors.New("relay: unavailable")

type unavailable struct{ error }

func (u unavailable) Unwrap() []error { return []error{u.error, ErrUnavailable} }

// Unavailable marks an error as one of the broker and not of the event: the relay pauses, with backoff, and the
// event loses no attempt. A nil error stays nil.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return unavailable{err}
}
