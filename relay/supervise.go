package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatx/luatx/message"
)

const (
	// maxGrace bounds the time between the end of a call's context and the moment at which the call is abandoned.
	maxGrace = 500 * time.Millisecond
	// leastGrace is the shortest grace while a relay with a short DrainTimeout stops.
	leastGrace = 20 * time.Millisecond
	// maxReserve bounds the part of DrainTimeout that is reserved for abandoned calls and for giving events back.
	maxReserve = time.Second
)

var (
	errTimeout = Classify("timeout", timeoutError{})
	errGoexit  = errors.New("relay: publish: the publisher ended its goroutine by runtime.Goexit; return an error instead")
)

// timeoutError wraps context.DeadlineExceeded, like the error of a Publisher that honors its context.
type timeoutError struct{}

func (timeoutError) Error() string {
	return "relay: publish: the call did not return within its deadline; make the publisher return when its context ends"
}

func (timeoutError) Unwrap() error { return context.DeadlineExceeded }

// supervision decides when a call is abandoned that outlives its context. The context carries the supervision to Publishers
// that wrap others. They abandon only the inner call that hangs, and return the results of the others.
type supervision struct {
	grace time.Duration
	// abandoned is called when a call is abandoned. It returns a function that is called if the call returns after all.
	abandoned func(events []*message.RawMessage) (returned func(errs []error))
}

type supervisionKey struct{}

func (s supervision) attach(ctx context.Context) context.Context {
	return context.WithValue(ctx, supervisionKey{}, s)
}

// graceOf returns how long after the end of its context a call is abandoned, for the duration of the call and the reserve
// of DrainTimeout.
func graceOf(call, reserve time.Duration) time.Duration {
	return min(maxGrace, call/4, max(leastGrace, reserve/2))
}

// reserveOf returns the last part of a DrainTimeout, in which no call of a Publisher may run.
func reserveOf(drain time.Duration) time.Duration { return min(maxReserve, drain/4) }

// ask calls a Publisher and returns one error for each event, whatever the Publisher does.
func ask(ctx context.Context, p Publisher, events []*message.RawMessage) []error {
	return supervise(ctx, events, func(ctx context.Context) []error {
		errs := p.Publish(ctx, events)
		switch n := len(events); {
		case errs == nil:
			return make([]error, n)
		case len(errs) != n:
			return fill(n, fmt.Errorf("relay: the publisher answered %d times to %d events", len(errs), n))
		}
		return errs
	})
}

// supervise runs a call in a goroutine of its own and returns its errors, one for each event, even if the call panics, ends
// its goroutine or never returns. It waits at most until the context has ended and the grace is over. A context that does
// not come from a relay or from Drive has no supervision, so supervise waits until the call returns.
func supervise(ctx context.Context, events []*message.RawMessage, call func(context.Context) []error) []error {
	n := len(events)
	if n == 0 {
		return nil
	}
	s, supervised := ctx.Value(supervisionKey{}).(supervision)
	inner := ctx
	if supervised { // a wrapping Publisher must return before it is abandoned itself
		inner = supervision{s.grace * 3 / 4, s.abandoned}.attach(ctx)
	}
	answers := make(chan []error, 1)
	go func() { complete(n, answers, func() []error { return call(inner) }) }()

	if !supervised {
		return <-answers
	}
	select {
	case errs := <-answers:
		return errs
	case <-ctx.Done():
	}
	select {
	case errs := <-answers:
		return errs
	case <-time.After(s.grace):
	}
	returned := s.abandoned(events)
	go func() { returned(<-answers) }()
	return fill(n, errTimeout)
}

// complete sends the errors of a call, even if the call panics or ends its goroutine.
func complete(n int, answers chan<- []error, call func() []error) {
	var errs []error
	defer func() {
		if v := recover(); v != nil {
			errs = fill(n, fmt.Errorf("relay: the publisher panicked: %v", v))
		}
		if errs == nil {
			errs = fill(n, errGoexit)
		}
		answers <- errs
	}()
	errs = call()
}

func fill(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}
