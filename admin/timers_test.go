package admin_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

// subjects returns the sorted subjects of the timers that a filter means.
func subjects(t *testing.T, op *admin.Operator, f admin.TimerFilter) (all []string) {
	t.Helper()
	for timer, err := range op.Timers(redistest.Soon(t), f) {
		redistest.Must(t, err)
		all = append(all, timer.State+" "+timer.Subject)
	}
	slices.Sort(all)
	return all
}

func TestOperatorCountsListsAndShowsTimers(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr, op := admintest.Service(t, client, 4)
		store, err := expiry.New(tr, expiry.Config{})
		redistest.Must(t, err)
		now, err := client.Time(ctx).Result()
		redistest.Must(t, err)
		now = now.Truncate(time.Millisecond)
		past, later := now.Add(-time.Minute), now.Add(time.Hour)
		for subject, due := range map[string]time.Time{"late-1": past, "late-2": past, "soon-1": later, "soon-2": later.Add(time.Hour), "gone": later} {
			redistest.Must(t, store.Record(ctx, subject, due))
		}
		_, err = store.Revoke(ctx, "gone", nil)
		redistest.Must(t, err)

		stats, err := op.TimerStats(ctx)
		if err != nil || stats.Open != 4 || stats.Due != 2 || stats.Decided != 1 || stats.Overdue < time.Minute || !stats.Next.Equal(later) {
			t.Errorf("stats: %+v, %v", stats, err)
		}
		for _, test := range []struct {
			filter admin.TimerFilter
			want   []string
		}{
			{admin.TimerFilter{}, []string{"open late-1", "open late-2", "open soon-1", "open soon-2"}},
			{admin.TimerFilter{Due: true}, []string{"open late-1", "open late-2"}},
			{admin.TimerFilter{Text: "-2"}, []string{"open late-2", "open soon-2"}},
			{admin.TimerFilter{Decided: true}, []string{"revoked gone"}},
		} {
			if got := subjects(t, op, test.filter); !slices.Equal(got, test.want) {
				t.Errorf("%+v: %v, want %v", test.filter, got, test.want)
			}
		}
		shown, err := op.Timer(ctx, "soon-1")
		if err != nil || len(shown) != 1 || shown[0].State != "open" || !shown[0].Due.Equal(later) {
			t.Errorf("soon-1: %+v, %v", shown, err)
		}
		if in := subjects(t, op, admin.TimerFilter{Slots: []int{shown[0].Slot}}); !slices.Contains(in, "open soon-1") {
			t.Errorf("its slot has %v", in)
		}
		if shown, err = op.Timer(ctx, "gone"); err != nil || len(shown) != 1 || shown[0].State != "revoked" || shown[0].Decided.Before(now) {
			t.Errorf("gone: %+v, %v", shown, err)
		}
		if _, err = op.Timer(ctx, "nobody"); !errors.Is(err, admin.ErrTimerNotFound) {
			t.Errorf("nobody: %v", err)
		}

		worker, err := expiry.NewWorker(store, expiry.WorkerConfig{Event: func(_ context.Context, timer expiry.Timer) (*message.Message, error) {
			return message.New("", message.Attributes{"type": "expired", "source": "/shop", "subject": timer.Subject}, nil), nil
		}})
		redistest.Must(t, err)
		admintest.Running(t, worker.Run)
		redistest.Eventually(t, "the due timers to fire", func() bool {
			return slices.Equal(subjects(t, op, admin.TimerFilter{Decided: true}), []string{"fired late-1", "fired late-2", "revoked gone"})
		})
		for timer, err := range op.Timers(ctx, admin.TimerFilter{Decided: true, Text: "late-1"}) {
			if redistest.Must(t, err); !timer.Due.Equal(past) || timer.Decided.Before(now) {
				t.Errorf("late-1: %+v", timer)
			}
		}
	})
}

func TestTimersListsEveryTimerOfOneMomentAcrossPages(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr, op := admintest.Service(t, client, 1)
		store, err := expiry.New(tr, expiry.Config{})
		redistest.Must(t, err)
		const n = 600
		want := make([]string, n)
		due := time.UnixMilli(1_900_000_000_000)
		for i, subject := range ids("t", n) {
			redistest.Must(t, store.Record(ctx, subject, due.Add(time.Duration(i/500)*time.Millisecond)))
			want[i] = "open " + subject
		}
		slices.Sort(want)
		if got := subjects(t, op, admin.TimerFilter{}); !slices.Equal(got, want) {
			t.Errorf("%d timers are listed, want each of %d once", len(got), n)
		}
	})
}

// pagesOf lists timers page by page, with an act between the pages.
func pagesOf(t testing.TB, op *admin.Operator, f admin.TimerFilter, size int, between func(last admin.Timer)) []string {
	t.Helper()
	var all []string
	for {
		n, last := 0, admin.Timer{}
		for timer, err := range op.Timers(redistest.Soon(t), f) {
			if redistest.Must(t, err); n == size {
				break
			}
			n, last = n+1, timer
			all = append(all, timer.State+" "+timer.Subject)
		}
		if n < size {
			return all
		}
		f.After = last.Cursor()
		between(last)
	}
}

func TestTimerCursorContinuesAListAfterARemovedTimer(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr, op := admintest.Service(t, client, 4)
		store, err := expiry.New(tr, expiry.Config{})
		redistest.Must(t, err)
		var want []string
		for i, subject := range ids("t", 50) { // seven due at a time
			redistest.Must(t, store.Record(ctx, subject, time.UnixMilli(1_900_000_000_000+int64(i/7))))
			want = append(want, "open "+subject)
		}
		got := pagesOf(t, op, admin.TimerFilter{}, 3, func(last admin.Timer) {
			_, err := store.Revoke(ctx, last.Subject, nil)
			redistest.Must(t, err)
		})
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("the pages have %d timers, want each of %d once: %q", len(got), len(want), got)
		}
		got = pagesOf(t, op, admin.TimerFilter{Decided: true}, 2, func(admin.Timer) {})
		slices.Sort(got)
		if want := subjects(t, op, admin.TimerFilter{Decided: true}); len(got) < 10 || !slices.Equal(got, want) {
			t.Errorf("the pages of decisions have %q, want %q", got, want)
		}
		for text, want := range map[string]string{"!": "is not a cursor", "MSAyIHg": "use the filter of the previous page"} { // 1 2 x
			for _, err := range op.Timers(ctx, admin.TimerFilter{After: text}) {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("after %q: %v, want %q", text, err, want)
				}
			}
		}
	})
}
