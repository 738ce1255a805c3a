// Package relay publishes committed events: inline, right after the commit in the process that committed, and
// cold, whatever has become due, by lease.
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

// A Publisher sends events on. It is given a batch and answers for each event at the same index:
//
//   - nil: it was sent;
//   - an error made by Unavailable: its destination cannot be reached, or takes nothing now. That costs the event
//     no attempt, and the relay pauses;
//   - an error made by Later: it has to wait its turn. That costs no attempt, and nothing else pauses;
//   - an error made by message.Permanent: it is parked at once;
//   - any other error: it was refused, which counts an attempt.
//
// A nil slice means that all were sent. The context ends after Config.PublishTimeout, and before the events' lease does. A
// call that does not return then is abandoned: its events count as failed, with the class timeout. Its goroutine runs on. If
// it returns later, the events that it has sent are settled as sent. A Publisher is called by several goroutines at once.
type Publisher interface {
	Publish(ctx context.Context, events []*message.RawMessage) []error
}

// PublisherFunc is a function as a Publisher.
type PublisherFunc func(ctx context.Context, events []*message.RawMessage) []error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, events []*message.RawMessage) []error {
	return f(ctx, events)
}

// A Scoped Publisher has several destinations, which fail apart from each other: when it answers Unavailable to an
// event, the relay pauses for events of the same scope and goes on with the others.
type Scoped interface {
	Publisher
	// Scope names the destination of an event, as the log should show it. It does no I/O. Empty stands for all
	// that the Publisher sends to; while that is unavailable the relay claims nothing at all.
	Scope(event *message.RawMessage) string
}

// WithScope makes any Publisher a Scoped one.
func WithScope(p Publisher, scope func(event *message.RawMessage) string) Scoped {
	return scoped{p, scope}
}

type scoped struct {
	Publisher
	scope func(*message.RawMessage) string
}

func (s scoped) Scope(event *message.RawMessage) string { return s.scope(event) }

// scopeOf is the scope of an event; a panic of the user's code counts as none.
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
	// ErrUnavailable is what the errors made by Unavailable are.
	ErrUnavailable = settle.ErrUnavailable
	// ErrLater is what the errors made by Later are.
	ErrLater = settle.ErrLater
)

// marked is an error that is a sentinel besides.
type marked struct{ err, sentinel error }

func (m marked) Error() string   { return m.err.Error() }
func (m marked) Unwrap() []error { return []error{m.err, m.sentinel} }

// Unavailable marks an error as one of the destination and not of the event: the relay pauses, with backoff, or
// for as long as a message.RetryAfter inside says, and the event loses no attempt. A nil error stays nil.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return marked{err, ErrUnavailable}
}

// Later marks an error as that of an event which has to wait its turn: it was not sent, loses no attempt, and is
// due again after d. A nil error stays nil.
func Later(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return marked{message.RetryAfter(err, d), ErrLater}
}

// Classified is an error that says what kind of failure it is, in a word without blanks such as http_422. Parked
// events are counted and found by it.
type Classified interface {
	error
	Class() string
}

// Classify gives an error a class; blanks in it become underscores. A nil error stays nil.
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

// classOf is the class of an error, and otherwise where it has none.
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
