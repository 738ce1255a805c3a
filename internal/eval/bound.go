package eval

import (
	"context"
	"sync"
	"time"
)

// bounds are the contexts of the round trips that callers make themselves. A context with a deadline of its own costs a
// tenth of the client's CPU time for a commit, so round trips share one if their callers' contexts end together.
type bounds struct {
	mu   sync.Mutex
	seen bool               // there was a call
	done <-chan struct{}    // the Done channel of the last caller's context
	ctx  context.Context    // the shared context, which ends with that of the caller; nil: there is none yet
	end  time.Time          // ctx ends at this time
	stop context.CancelFunc // is not called, because a caller may use ctx until it ends
}

// leeway is the part of the time that a caller waits by which a shared context may end later.
const leeway = 64

// within returns a context that also ends at until, or a little later. The context is shared if that of the caller ends together
// with the one of the call before. If until is zero, the context ends only with ctx.
func (b *bounds) within(ctx context.Context, now, until time.Time) (context.Context, context.CancelFunc) {
	if until.IsZero() {
		return ctx, func() {}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if done := ctx.Done(); !b.seen || b.done != done {
		b.seen, b.done, b.ctx = true, done, nil
		return context.WithDeadline(ctx, until)
	}
	latest := until.Add(until.Sub(now) / leeway)
	if b.ctx == nil || b.end.Before(until) || b.end.After(latest) {
		b.ctx, b.stop = context.WithDeadline(ctx, latest)
		b.end = latest
	}
	return shared{b.ctx, ctx}, func() {}
}

// shared is a shared context with the values of a caller's context.
type shared struct {
	context.Context

	caller context.Context
}

func (s shared) Value(key any) any { return s.caller.Value(key) }
