package eval

import (
	"context"
	"sync"
	"time"
)

// bounds are the contexts of the round trips that callers make themselves. A context with a deadline of its own costs 5 % of the
// client's CPU time for a commit, so callers share one if their contexts end together.
type bounds struct {
	mu   sync.Mutex
	seen bool            // there was a caller
	done <-chan struct{} // the Done channel of the last caller's context
	last *bound          // for further callers with this channel; nil: there is none yet
}

// bound is a context that callers share.
type bound struct {
	ctx   context.Context // ends with the callers' contexts, or at the end
	stop  context.CancelFunc
	end   time.Time
	users int // callers that use it, and one more while further callers get it
}

// leeway is the part of a caller's patience by which a shared context may end later.
const leeway = 64

// within returns a context that also ends at until, or a little later, and what the caller passes to leave afterwards. The context
// is shared if that of the caller ends together with the one of the caller before. If until is zero, the context ends only with
// ctx.
func (b *bounds) within(ctx context.Context, now, until time.Time) (context.Context, *bound) {
	if until.IsZero() {
		return ctx, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if done := ctx.Done(); !b.seen || b.done != done {
		b.offer(nil)
		b.seen, b.done = true, done
		own := newBound(ctx, until)
		return own.ctx, own
	}
	latest := until.Add(until.Sub(now) / leeway)
	if b.last == nil || b.last.end.Before(until) || b.last.end.After(latest) {
		b.offer(newBound(ctx, latest))
	}
	b.last.users++
	return shared{b.last.ctx, ctx}, b.last
}

// newBound returns a bound with one user.
func newBound(ctx context.Context, end time.Time) *bound {
	limited, stop := context.WithDeadline(ctx, end)
	return &bound{ctx: limited, stop: stop, end: end, users: 1}
}

// leave ends a caller's use of its context.
func (b *bounds) leave(used *bound) {
	if used == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	used.leave()
}

// offer replaces the bound for further callers, which counts as a use.
func (b *bounds) offer(next *bound) {
	if b.last != nil {
		b.last.leave()
	}
	b.last = next
}

// leave ends a use. After the last one, the context no longer holds the message of the caller for which it was made.
func (b *bound) leave() {
	b.users--
	if b.users == 0 {
		b.stop()
	}
}

// shared is a shared context with the values of a caller's context.
type shared struct {
	context.Context

	caller context.Context
}

func (s shared) Value(key any) any { return s.caller.Value(key) }
