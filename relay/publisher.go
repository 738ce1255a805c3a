// Package relay publishes committed events. It publishes them inline, right after the commit and in the process that
// committed, or cold: it leases events that are due and publishes them.
package relay

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/message"
)

// A Publisher publishes batches of events. Publish returns the result of each event, at the same index:
//
//   - nil: the event was published.
//   - an error made by Unavailable: the destination cannot be reached, or accepts nothing at the moment. The attempt does
//     not
//
// count, and the relay pauses.
//   - an error made by Later: the event has to wait its turn. The attempt does not count, and nothing else pauses.
//   - an error made by message.Permanent: the relay parks the event at once.
//   - any other error: the attempt failed, and it counts.
//
// A nil slice means that all events were published. The context ends after Config.PublishTimeout, and before the lease of
// the events ends. If a call does not return then, the relay abandons it: its events count as failed, with the class
// timeout, and its goroutine keeps running. If the call returns later, the relay settles the events that it published as
// sent. Several goroutines call a Publisher at once.
type Publisher interface {
	Publish(ctx context.Context, events []*message.RawMessage) []error
}

// PublisherFunc is a function that implements Publisher.
type PublisherFunc func(ctx context.Context, events []*message.RawMessage) []error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, events []*message.RawMessage) []error {
	return f(ctx, events)
}

// A Scoped Publisher has several destinations that fail independently. If it returns an error made by Unavailable for an
// event, the relay pauses only the events of the same scope.
type Scoped interface {
	Publisher
	// Scope returns the name of the event's destination, as it appears in the log. It does no I/O. The empty scope stands for
	// every destination of the Publisher: while that is unavailable, the relay claims nothing at all.
	Scope(event *message.RawMessage) string
}

// WithScope returns a Scoped Publisher that publishes through p and takes the scope of each event from the given function.
func WithScope(p Publisher, scope func(event *message.RawMessage) string) Scoped {
	return scoped{p, scope}
}

type scoped struct {
	Publisher
	scope func(*message.RawMessage) string
}

func (s scoped) Scope(event *message.RawMessage) string { return s.scope(event) }

// scopeOf returns the scope of an event. If the user's code panics, the scope is empty.
func scopeOf(p Publisher, event *message.RawMessage) (scope string) {
	s, ok := p.(Scoped)
	if !ok {
		return ""
	}
	defer func() {
		if recover() != nil {
			scope = ""
		}
	}()
	return s.Scope(event)
}

var (
	// ErrUnavailable is wrapped by the errors that Unavailable makes.
	ErrUnavailable = settle.ErrUnavailable
	// ErrLater is wrapped by the errors that Later makes.
	ErrLater = settle.ErrLater
)

// marked is an error that wraps a sentinel besides its cause.
type marked struct{ err, sentinel error }

func (m marked) Error() string   { return m.err.Error() }
func (m marked) Unwrap() []error { return []error{m.err, m.sentinel} }

// Unavailable marks an error as a failure of the destination, not of the event. The relay pauses the destination, with
// backoff or for the delay that err requests by message.RetryAfter, and the attempt does not count. If err is nil,
// Unavailable returns nil.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return marked{err, ErrUnavailable}
}

// Later marks an error as that of an event which was not sent because it has to wait its turn. The event is due again after
// d, and the attempt does not count. If err is nil, Later returns nil.
func Later(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return marked{message.RetryAfter(err, d), ErrLater}
}

// Classified is an error with a class: the kind of failure, as one word without spaces, such as http_422. Parked events are
// counted and filtered by their class.
type Classified interface {
	error
	Class() string
}

// Classify returns err with a class, in which underscores replace spaces. If err is nil, Classify returns nil.
func Classify(class string, err error) error {
	if err == nil {
		return nil
	}
	return classified{err, strings.Join(strings.Fields(class), "_")}
}

type classified struct {
	error
	class string
}

func (c classified) Unwrap() error { return c.error }
func (c classified) Class() string { return c.class }

// classOf returns the class of an error, or otherwise if it has none.
func classOf(err error, otherwise string) string {
	var c Classified
	switch {
	case errors.As(err, &c):
	case errors.Is(err, context.DeadlineExceeded):
		return cmp.Or(otherwise, "timeout")
	default:
		return otherwise
	}
	if class := strings.Join(strings.Fields(c.Class()), "_"); class != "" {
		return class
	}
	return otherwise
}
