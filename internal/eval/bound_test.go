package eval

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/test/assert"
)

type callerKey struct{}

// bounded returns a context of bounds and the function that ends its use.
func bounded(caller context.Context, t *testing.T, b *bounds, patience time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	until := time.Now().Add(patience)
	ctx, used := b.within(context.WithValue(caller, callerKey{}, patience), time.Now(), until)
	if end, known := ctx.Deadline(); !known || end.Before(until) || end.After(until.Add(patience/leeway)) {
		t.Errorf("a context for %v ends after %v", patience, time.Until(end))
	}
	assert.Equal(t, ctx.Value(callerKey{}), any(patience), "the caller's value")
	return ctx, func() { b.leave(used) }
}

func TestCallersWhoseContextsEndTogetherShareABound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bounds
		consumer, stop := context.WithCancel(t.Context())
		first, leave1 := bounded(consumer, t, &b, time.Minute)
		second, leave2 := bounded(consumer, t, &b, time.Minute)
		third, leave3 := bounded(consumer, t, &b, time.Minute)
		if first.Done() == second.Done() || second.Done() != third.Done() {
			t.Error("the second and the third caller do not share a context, or the first one does")
		}
		leave2()
		time.Sleep(time.Second / 2)
		later, leave4 := bounded(consumer, t, &b, time.Minute)
		if later.Done() != second.Done() {
			t.Error("a caller half a second later has another context")
		}
		time.Sleep(time.Second / 2)
		last, leave5 := bounded(consumer, t, &b, time.Minute)
		if last.Done() == second.Done() {
			t.Error("a caller that waits longer than the shared context lasts got it")
		}
		leave3()
		assert.Equal(t, later.Err(), nil, "the replaced context while a caller uses it")
		leave4()
		assert.Equal(t, later.Err(), context.Canceled, "the replaced context after its last use")
		leave5()
		assert.Equal(t, last.Err(), nil, "the context that further callers get")
		stop()
		synctest.Wait()
		assert.Equal(t, last.Err(), context.Canceled, "a context after that of the callers has ended")
		assert.Equal(t, first.Err(), context.Canceled, "a context of a single caller after that of the caller has ended")
		leave1()
	})
}

func TestBoundFitsEveryCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bounds
		consumer, stop := context.WithCancel(t.Context())
		defer stop()
		for range 2 {
			_, leave := bounded(consumer, t, &b, time.Minute)
			defer leave()
		}
		patient, leave := bounded(consumer, t, &b, time.Minute)
		defer leave()
		hasty, leave := bounded(consumer, t, &b, 64*time.Second/60)
		defer leave()
		if patient.Done() == hasty.Done() {
			t.Error("a caller that waits for a second got the context of one that waits for a minute")
		}
		last, leave := bounded(consumer, t, &b, time.Minute)
		defer leave()
		for _, caller := range []context.Context{t.Context(), t.Context(), consumer} {
			ctx, leave := bounded(caller, t, &b, time.Minute)
			defer leave()
			if ctx.Done() == last.Done() {
				t.Error("callers whose contexts end separately share one")
			}
		}
		time.Sleep(64 * time.Second / 60)
		assert.Equal(t, hasty.Err(), nil, "a shared context at the caller's deadline")
		time.Sleep(time.Second / 60)
		synctest.Wait()
		assert.Equal(t, hasty.Err(), context.DeadlineExceeded, "a shared context a 64th of the caller's patience later")
		if unbounded, _ := b.within(consumer, time.Now(), time.Time{}); unbounded != consumer {
			t.Error("a caller without a deadline got another context")
		}
	})
}
