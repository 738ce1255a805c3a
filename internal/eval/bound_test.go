package eval

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/test/assert"
)

func TestCallersWhoseContextsEndTogetherShareABound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		var b bounds
		within := func(ctx context.Context, patience time.Duration) context.Context {
			t.Helper()
			bounded, cancel := b.within(context.WithValue(ctx, key{}, patience), time.Now(), time.Now().Add(patience))
			t.Cleanup(cancel)
			if end, known := bounded.Deadline(); !known || end.Before(time.Now().Add(patience)) || end.After(time.Now().Add(patience+patience/leeway)) {
				t.Errorf("a context for %v ends after %v", patience, time.Until(end))
			}
			assert.Equal(t, bounded.Value(key{}), any(patience), "the caller's value")
			return bounded
		}
		consumer, stop := context.WithCancel(t.Context())
		first, second, third := within(consumer, time.Minute), within(consumer, time.Minute), within(consumer, time.Minute)
		if first.Done() == second.Done() || second.Done() != third.Done() {
			t.Error("the second and the third call do not share a context, or the first one does")
		}
		time.Sleep(time.Second / 2)
		if later := within(consumer, time.Minute); later.Done() != second.Done() {
			t.Error("a call half a second later has a context of its own")
		}
		time.Sleep(time.Second / 2)
		if later := within(consumer, time.Minute); later.Done() == second.Done() {
			t.Error("a call that waits longer than the shared context lasts got it")
		}
		if short := within(consumer, time.Second); short.Done() == second.Done() {
			t.Error("a call that waits for a second got a context that lasts for a minute")
		}
		other := within(t.Context(), time.Minute)
		if again := within(consumer, time.Minute); again.Done() == second.Done() || again.Done() == other.Done() {
			t.Error("callers whose contexts end separately share one")
		}
		stop()
		synctest.Wait()
		assert.Equal(t, errors.Join(first.Err(), second.Err(), third.Err()).Error(), "context canceled\ncontext canceled\ncontext canceled", "after the caller's context has ended")
		assert.Equal(t, other.Err(), nil, "the context of another caller")
		time.Sleep(2 * time.Minute)
		assert.Equal(t, other.Err(), context.DeadlineExceeded, "after the deadline")
	})
}

func TestSharedBoundEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bounds
		var ctx context.Context
		for range 2 {
			bounded, cancel := b.within(t.Context(), time.Now(), time.Now().Add(64*time.Second))
			defer cancel()
			ctx = bounded
		}
		time.Sleep(64 * time.Second)
		assert.Equal(t, ctx.Err(), nil, "at the caller's deadline")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, ctx.Err(), context.DeadlineExceeded, "a second later")
		if unbounded, _ := b.within(t.Context(), time.Now(), time.Time{}); unbounded != t.Context() {
			t.Error("a caller without a deadline got another context")
		}
	})
}
