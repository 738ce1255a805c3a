package trigger

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/message"
)

// number returns the milliseconds of an entry's id, which the fake driver counts up from 1.
func number(t *testing.T, msg *message.RawMessage) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSuffix(msg.ID(), "-0"))
	if err != nil {
		t.Error(err)
	}
	return n
}

func TestTriggerWithTooManyRetriesReceivesNothingUntilOneIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake, healed := newFake(t, maxRetries+100), atomic.Bool{}
		s := begin(t, Config{Driver: fake, Concurrency: 4, Run: func(context.Context, *message.RawMessage) error {
			if healed.Load() {
				return nil
			}
			return message.RetryAfter(errFake, 30*time.Second)
		}})
		time.Sleep(20 * time.Second)
		const places = 4 // those in progress when the bound was reached
		if got := s.Stats(); got.Retrying < maxRetries || got.Retrying >= maxRetries+places || got.Delivered != got.Retrying || got.InFlight != 0 {
			t.Errorf("%+v, want %d retries", got, maxRetries)
		}
		if asked := fake.count(); asked > maxRetries+places {
			t.Errorf("the driver was asked %d times for %d entries", asked, maxRetries)
		}
		healed.Store(true)
		time.Sleep(time.Minute)
		if acked, _ := fake.settled(); acked != maxRetries+100 {
			t.Errorf("%d acked", acked)
		}
		if got := s.Stats(); got.Retrying != 0 || got.OldestUnacked != 0 {
			t.Errorf("%+v", got)
		}
		s.end()
	})
}

func TestRetriesWaitDuringAnOutageAndAreReturnedAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t, 10)
		s := begin(t, Config{Driver: fake, Run: func(context.Context, *message.RawMessage) error {
			return message.RetryAfter(errFake, 5*time.Second)
		}})
		time.Sleep(time.Second)
		down := func() error { return errFake }
		fake.set(down, down, nil)
		time.Sleep(time.Minute)
		if got := s.Stats(); got.Retrying != 9 && got.Retrying != 10 || got.OldestUnacked == 0 { // one may have been returned before
			t.Errorf("%+v", got)
		}
		s.end()
		if n := fake.held(); n != 0 {
			t.Errorf("%d deliveries were never let go", n)
		}
	})
}

func TestRetriesRunWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake, ran := newFake(t, 3), &ran{}
		s := begin(t, Config{Driver: fake, BlockTimeout: time.Second, Run: func(_ context.Context, msg *message.RawMessage) error {
			ran.note(msg)
			if ids, _ := ran.all(); len(ids) > 3 {
				return nil
			}
			return message.RetryAfter(errFake, time.Duration(number(t, msg))*170*time.Millisecond)
		}})
		began := time.Now()
		time.Sleep(5 * time.Second)
		ids, at := ran.all()
		if !slices.Equal(ids, []string{"1-0", "2-0", "3-0", "1-0", "2-0", "3-0"}) {
			t.Fatalf("ran %v", ids)
		}
		for i, n := range []int{1, 2, 3} {
			want := time.Duration(n) * 170 * time.Millisecond
			if got := at[3+i].Sub(began); got < want || got > want+2*glance {
				t.Errorf("entry %d ran again after %v, want %v", n, got, want)
			}
		}
		s.end()
	})
}

func TestTriggerIsStalledWhileNothingSucceedsAndReadyOnceItDoes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run  func(ctx context.Context, n int) error
		add  time.Duration // between two entries
		want []bool        // every 20 seconds, whether it is stalled
	}{
		"nothing to do":             {nil, time.Hour, []bool{false, false, false, false}},
		"all succeed":               {func(context.Context, int) error { return nil }, 5 * time.Second, []bool{false, false, false, false}},
		"all fail":                  {func(context.Context, int) error { return errFake }, 5 * time.Second, []bool{false, false, true, true}},
		"all are refused":           {func(context.Context, int) error { return message.Permanent(errFake) }, 5 * time.Second, []bool{false, false, true, true}},
		"half of them fail":         {func(_ context.Context, n int) error { return []error{nil, errFake}[n%2] }, 5 * time.Second, []bool{false, false, false, false}},
		"one is refused":            {func(context.Context, int) error { return message.Permanent(errFake) }, time.Hour, []bool{false, false, false, false}},
		"it hangs":                  {func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }, time.Hour, []bool{false, false, true, true}},
		"one is deferred":           {func(context.Context, int) error { return message.RetryAfter(errFake, time.Hour) }, time.Hour, []bool{false, false, false, false}},
		"all are deferred a little": {func(context.Context, int) error { return message.RetryAfter(errFake, 20*time.Second) }, 5 * time.Second, []bool{false, false, true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fake := newFake(t, 0)
				sick, heal := context.WithCancel(t.Context())
				s := begin(t, Config{Driver: fake, ProgressTimeout: 50 * time.Second, Run: func(ctx context.Context, msg *message.RawMessage) error {
					if sick.Err() != nil {
						return nil
					}
					ctx, cancel := context.WithCancel(ctx)
					defer cancel()
					defer context.AfterFunc(sick, cancel)()
					return c.run(ctx, number(t, msg))
				}})
				stop := make(chan struct{})
				go func() {
					for c.run != nil {
						fake.add(map[string]string{"data": "x"})
						select {
						case <-time.After(c.add):
						case <-stop:
							return
						}
					}
				}()
				for i, want := range c.want {
					time.Sleep(20*time.Second + time.Millisecond)
					if h := s.Health(); h.Stalled != want || h.Ready == want {
						t.Errorf("after %d s it is %+v", 20*(i+1), h)
					}
				}
				heal()
				time.Sleep(25 * time.Second)
				if h := s.Health(); h.Stalled || !h.Ready {
					t.Errorf("healed, and %+v", h)
				}
				close(stop)
				s.end()
			})
		})
	}
}

func TestPermanentFailureThatWaitsDoesNotHideAStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, Config{
			Driver: newFake(t, 1), NoDeadLetter: true, ProgressTimeout: 10 * time.Second, // shorter than the delay of such an entry
			Run: func(context.Context, *message.RawMessage) error { return message.Permanent(errFake) },
		})
		time.Sleep(15 * time.Second)
		if h := s.Health(); !h.Stalled || h.Ready {
			t.Errorf("%+v", h)
		}
		s.end()
	})
}

func TestDeferredEntryThatHangsWhenItRunsAgainIsAStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var deferred atomic.Bool
		s := begin(t, Config{Driver: newFake(t, 1), ProgressTimeout: 10 * time.Second, Run: func(ctx context.Context, _ *message.RawMessage) error {
			if deferred.CompareAndSwap(false, true) {
				return message.RetryAfter(errFake, time.Minute)
			}
			<-ctx.Done()
			return ctx.Err()
		}})
		for _, c := range []struct {
			after   time.Duration
			stalled bool
		}{{50 * time.Second, false}, {15 * time.Second, false}, {15 * time.Second, true}} {
			time.Sleep(c.after)
			if h := s.Health(); h.Stalled != c.stalled || h.Ready == c.stalled {
				t.Errorf("after %v more: %+v", c.after, h)
			}
		}
		s.end()
	})
}
