package trigger

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/message"
)

// newPlace returns a place of a trigger that does not run.
func newPlace(t *testing.T, driver Driver, cfg Config) *place {
	t.Helper()
	cfg.Driver, cfg.Function, cfg.Logger = driver, "mailer", slog.New(slog.DiscardHandler)
	r := New(cfg)
	p := &place{running: newRunning(r, driver, r.cfg.logger())}
	p.life, p.stop = context.WithCancel(t.Context())
	t.Cleanup(p.stop)
	return p
}

func TestHealthShowsThePlaceThatReceivesOrElseTheOneThatChangedLast(t *testing.T) {
	t.Parallel()
	for _, stops := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake, free, acked := newFake(t, 1), make(chan struct{}), make(chan struct{})
			fake.ack = func() error { <-acked; return nil }
			s := begin(t, Config{Driver: fake, Concurrency: 2, Run: func(context.Context, *message.RawMessage) error { <-free; return nil }})
			want := func(when string, want State) {
				t.Helper()
				synctest.Wait()
				if h := s.Health(); h.State != want {
					t.Errorf("%s: %s, want %s", when, h.State, want)
				}
			}
			want("one runs a function", Receiving)
			if stops {
				s.cancel()
				want("the other has ended", Receiving)
				free <- struct{}{}
				want("the last one writes an ack", Completed)
			} else {
				free <- struct{}{}
				want("one writes an ack", Receiving)
				fake.add(map[string]string{"data": "x"})
				time.Sleep(time.Second)
				want("neither receives", Executing)
				free <- struct{}{}
			}
			close(acked)
			s.end()
		})
	}
}

func TestDelaysOfReconnectsDoubleWithEachFailure(t *testing.T) {
	t.Parallel()
	const s = time.Second
	down := func() error { return errFake }
	for name, c := range map[string]struct {
		connect func() error
		base    time.Duration
		limits  []time.Duration // between two attempts
	}{
		"connecting fails":             {down, s, []time.Duration{s, 2 * s, 4 * s}},
		"receiving fails":              {nil, s, []time.Duration{0, s, 2 * s, 4 * s}},
		"connecting fails, at once":    {down, 1, []time.Duration{minDelay, minDelay, minDelay}},
		"receiving fails, and at once": {nil, 1, []time.Duration{0, minDelay, minDelay}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fake := newFake(t, 0)
				tr := begin(t, Config{Driver: fake, Retry: Retry{Reconnect: message.Backoff{Base: c.base, Max: c.base * 16}}})
				longest := make([]time.Duration, len(c.limits))
				for range 40 {
					time.Sleep(time.Minute)
					if !tr.Health().Ready {
						t.Fatalf("%+v", tr.Health())
					}
					fake.connected()
					fake.set(down, c.connect, nil)
					time.Sleep(10 * time.Second)
					fake.set(nil, nil, nil)
					connects := fake.connected()
					for i, limit := range c.limits {
						gap := connects[i+1].Sub(connects[i])
						if longest[i] = max(longest[i], gap); gap > limit || gap < min(limit, minDelay) {
							t.Errorf("attempt %d after %v, want %v at most", i+2, gap, limit)
						}
					}
				}
				for i, limit := range c.limits {
					if longest[i] < limit/2 {
						t.Errorf("attempt %d after %v at most, want about %v", i+2, longest[i], limit)
					}
				}
				tr.end()
			})
		})
	}
}

func TestFailureIsOverWithTheNextReadAndEachNewErrorIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t, 0)
		fake.next = times(1)
		s := begin(t, Config{Driver: fake})
		synctest.Wait()
		if h := s.Health(); !h.Ready || h.State != Receiving || !errors.Is(h.LastError, errFake) {
			t.Errorf("reconnected, and %+v", h)
		}
		time.Sleep(time.Second)
		if n := len(s.log.with("receiving recovered")); n != 1 {
			t.Errorf("%d lines say that it has recovered", n)
		}
		var attempts atomic.Int32
		fake.set(func() error { return errFake }, func() error {
			if attempts.Add(1) > 3 {
				return errEnd
			}
			return errFake
		}, nil)
		time.Sleep(time.Minute)
		if failed := s.log.with("receiving failed"); len(failed) != 3 || failed[2]["error"] != errEnd.Error() {
			t.Errorf("two outages, the second one with two errors, were logged as %v", failed)
		}
		s.end()
	})
}

func TestEntryThatArrivesAsTheTriggerStopsRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t, 0)
		s := begin(t, Config{Driver: fake})
		synctest.Wait()
		fake.set(func() error { s.cancel(); return nil }, nil, nil)
		fake.add(map[string]string{"data": "x"})
		time.Sleep(time.Second)
		s.end()
		if acked, _ := fake.settled(); acked != 1 || fake.held() != 0 {
			t.Errorf("%d acked, %d without Done", acked, fake.held())
		}
	})
}

func TestPlacesThatFailTogetherReconnectOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake, fails := newFake(t, 2), times(2)
		fake.ack = func() error { pass(time.Second); return fails() }
		s := begin(t, Config{Driver: fake, Concurrency: 2})
		time.Sleep(time.Minute)
		fake.add(map[string]string{"data": "x"}) // passes the turn on to the second place
		time.Sleep(time.Minute)
		if got := s.Stats(); got.Reconnects != 1 || got.AckFailed != 2 || got.Acked != 3 {
			t.Errorf("%+v", got)
		}
		s.end()
	})
}

func TestEntryThatComesAgainIsDoneIfItsAckWasWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	p, done := newPlace(t, newFake(t, 0), Config{}), []bool(nil)
	again := &work{d: &Delivery{Done: func(settled bool) { done = append(done, settled) }}, before: &work{}}
	if !p.payAgain(again) || !slices.Equal(done, []bool{true}) {
		t.Errorf("done as %v", done)
	}
}

func TestBackoffOfOwedAcksBeginsAgainAfterASuccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t, 1)
		p, longest := newPlace(t, fake, Config{Retry: Retry{Reconnect: message.Backoff{Base: time.Second, Max: time.Hour}}}), time.Duration(0)
		for range 40 {
			w := &work{d: &Delivery{ID: "1-0"}, open: p.progress.begin(&Delivery{})}
			p.owe(w, errFake)
			fake.set(nil, nil, func() error { return errFake })
			if err := p.payDue(); err != nil {
				t.Fatal(err)
			}
			longest = max(longest, time.Until(p.owed.due))
			fake.set(nil, nil, nil)
			time.Sleep(time.Minute)
			if err := p.payDue(); err != nil || p.owed.has(w) {
				t.Fatalf("not written, %v", err)
			}
		}
		if longest <= time.Second/2 || longest > time.Second {
			t.Errorf("the longest first delay is %v", longest)
		}
	})
}

func TestDelaysOfEntriesDoubleWithEachDelivery(t *testing.T) {
	t.Parallel()
	p := newPlace(t, newFake(t, 0), Config{Retry: Retry{Entry: message.Backoff{Base: time.Second, Max: time.Hour}}})
	for attempt, limit := range map[int64]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second} {
		longest := time.Duration(0)
		for range 40 {
			d := &Delivery{Attempt: attempt}
			p.work = &work{d: d, open: p.progress.begin(d)}
			if event := p.fail(errFake); event != onFailed {
				t.Fatal(event)
			}
			longest = max(longest, p.delay)
		}
		if longest <= limit/2 || longest > limit {
			t.Errorf("after %d deliveries the longest delay is %v, want about %v", attempt, longest, limit)
		}
	}
}

// patient is a driver that returns nothing, and records how long it was to wait.
type patient struct {
	*fakeDriver
	waits []time.Duration
}

func (d *patient) NextDelivery(_ context.Context, wait time.Duration) (*Delivery, error) {
	d.waits = append(d.waits, wait)
	return nil, nil
}

func TestNextGivesOneDueRetryBackAndWaitsForAnother(t *testing.T) {
	t.Parallel()
	const block, soon = 2 * time.Second, 300 * time.Millisecond
	for name, c := range map[string]struct {
		count    int
		due      time.Duration
		after    bool // the last delivery was a retry
		failures int
		waits    []time.Duration
		back     int
		takes    time.Duration
	}{
		"no retries":                     {waits: []time.Duration{block}},
		"one is due soon":                {count: 1, due: soon, waits: []time.Duration{soon}},
		"one is due late":                {count: 1, due: time.Minute, waits: []time.Duration{block}},
		"one is due":                     {count: 1, waits: []time.Duration{block}, back: 1},
		"one is overdue":                 {count: 1, due: -time.Second, waits: []time.Duration{block}, back: 1},
		"two are due":                    {count: 2, waits: []time.Duration{glance}, back: 1},
		"one is due after another":       {count: 1, after: true, waits: []time.Duration{glance, block}, back: 1},
		"the driver has failed":          {count: 1, failures: 1, waits: []time.Duration{block}},
		"one less than too many":         {count: maxRetries - 1, due: soon, waits: []time.Duration{soon}},
		"too many":                       {count: maxRetries, due: soon, takes: soon},
		"too many are due after a retry": {count: maxRetries, after: true, waits: []time.Duration{glance}, back: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				driver, back := &patient{fakeDriver: newFake(t, 0)}, 0
				p := newPlace(t, driver, Config{BlockTimeout: block})
				p.failures, p.retries.lastWasRetry = c.failures, c.after
				for range c.count {
					d := &Delivery{Done: func(bool) { back++ }}
					p.postpone(&work{d: d, open: p.progress.begin(d)}, c.due)
				}
				if wait, _ := p.retries.wait(block); wait < 0 {
					t.Errorf("to wait %v", wait)
				}
				began := time.Now()
				if d, err := p.next(t.Context()); d != nil || err != nil {
					t.Errorf("%v, %v", d, err)
				}
				if took := time.Since(began); !slices.Equal(driver.waits, c.waits) || back != c.back || took != c.takes {
					t.Errorf("the driver waited %v, want %v; %d given back, want %d; it took %v, want %v", driver.waits, c.waits, back, c.back, took, c.takes)
				}
			})
		})
	}
}
