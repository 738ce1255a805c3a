package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/cmd/luatx/internal/shop"
	"github.com/luatx/luatx/internal/test/redistest"
)

// newTestShift returns a shift without workers, so that nothing is ever handled.
func newTestShift(t *testing.T, options shop.Options) *shift {
	t.Helper()
	o, _ := newObserver(t, shop.Scripted)
	orders := shop.BuiltIn(1)
	return newShift(job{
		options: options, mode: shop.Scripted, orders: orders, expected: shop.Expect(orders),
		client: o.client, keys: o.keys, progress: shop.NewProgress(io.Discard, false, false, "x", len(orders)),
	}, o, &crew{failed: make(chan error, 1)})
}

func TestShiftEndsWithTheCauseOfItsEnd(t *testing.T) {
	t.Parallel()
	sick := errors.New("sick")
	for name, test := range map[string]struct {
		cause func(t *testing.T, s *shift, stop context.CancelCauseFunc)
		want  string
	}{
		"too long":      {func(_ *testing.T, s *shift, _ context.CancelCauseFunc) { s.most = 50 * time.Millisecond }, errTooLong.Error()},
		"interrupted":   {func(_ *testing.T, _ *shift, stop context.CancelCauseFunc) { stop(sick) }, "sick"},
		"worker failed": {func(_ *testing.T, s *shift, _ context.CancelCauseFunc) { s.crew.failed <- sick }, "sick"},
		"cannot feed": {func(t *testing.T, s *shift, _ context.CancelCauseFunc) {
			t.Helper()
			tag, err := s.job.keys.space.Tag(s.job.orders[0].Customer)
			if err == nil {
				err = s.job.client.Set(t.Context(), s.job.keys.orders(tag), "no stream", 0).Err()
			}
			redistest.Must(t, err)
		}, "WRONGTYPE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			s := newTestShift(t, shop.Options{})
			test.cause(t, s, stop)
			if _, err := s.run(ctx); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("it ended with %v, want %s", err, test.want)
			}
		})
	}
}

func TestOrdersWaitForTheKillBeforeThemAndItsVictim(t *testing.T) {
	t.Parallel()
	s := newTestShift(t, shop.Options{KillEvery: 100, Workers: 1})
	victim := &member{ready: make(chan struct{}), done: make(chan struct{})}
	s.crew.members = []*member{victim}
	wantLimit := func(want int64) {
		t.Helper()
		if s.allow(); s.fed.limit.Load() != want {
			t.Errorf("after %d kills, %d orders are allowed, want %d", s.kills, s.fed.limit.Load(), want)
		}
	}
	wantLimit(0)
	close(victim.ready)
	ahead := int64(partitions * inFlight)
	wantLimit(100 + ahead)
	s.kills = 1
	s.crew.members[0] = &member{ready: make(chan struct{}), done: make(chan struct{})}
	wantLimit(100 + ahead)
	close(s.crew.members[0].done) // it has ended, and the run gets an error
	wantLimit(200 + ahead)
	s.kills = 2
	wantLimit(300)
}

func TestDeadlineGrowsWithTheOrdersAndALowRate(t *testing.T) {
	t.Parallel()
	orders := someOrders(10)
	j := job{orders: orders, expected: shop.Expected{Events: 90}, options: shop.Options{Work: 75 * time.Millisecond}}
	if d := j.deadline(); d != 2*time.Minute+10*time.Second {
		t.Errorf("the deadline is %s", d)
	}
	j.options.Rate = 2
	if d := j.deadline(); d != 2*time.Minute+15*time.Second {
		t.Errorf("at a low rate the deadline is %s", d)
	}
}

func TestStatusFollowsFromTheError(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		ctx  context.Context //nolint:containedctx // a test's table
		err  error
		want int
	}{
		{t.Context(), nil, statusFine},
		{ended, nil, statusFine},
		{t.Context(), errInexact, statusInexact},
		{t.Context(), errTooLong, statusInexact},
		{t.Context(), usageError{errTooLong}, statusUsage},
		{t.Context(), errors.Join(errTooLong, usageError{errTooLong}), statusUsage},
		{ended, errTooLong, statusInterrupted},
	} {
		if got := status(test.ctx, test.err); got != test.want {
			t.Errorf("%v ends with %d, want %d", test.err, got, test.want)
		}
	}
}
