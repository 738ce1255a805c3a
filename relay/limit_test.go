package relay_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// meter records the events that it gets, and when.
type meter struct {
	took   time.Duration
	answer func(*message.RawMessage) error

	mu     sync.Mutex
	events []*message.RawMessage
	times  []time.Time
	calls  int
	inside int
	most   int
}

func (m *meter) Publish(_ context.Context, events []*message.RawMessage) []error {
	m.mu.Lock()
	for _, e := range events {
		m.events, m.times = append(m.events, e), append(m.times, time.Now())
	}
	m.calls++
	m.inside++
	m.most = max(m.most, m.inside)
	m.mu.Unlock()
	if m.took > 0 {
		<-time.After(m.took)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inside--
	errs := make([]error, len(events))
	for i, e := range events {
		if m.answer != nil {
			errs[i] = m.answer(e)
		}
	}
	return errs
}

func (m *meter) ids() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := make([]string, len(m.events))
	for i, e := range m.events {
		ids[i] = e.ID()
	}
	return ids
}

func limit(t testing.TB, p relay.Publisher, cfg relay.LimitConfig) relay.Scoped {
	t.Helper()
	l, err := relay.Limit(p, cfg)
	redistest.Must(t, err)
	return l
}

func byTenant(event *message.RawMessage) string {
	tenant, _ := event.Attributes["tenant"].(string)
	return tenant
}

func ofTenant(name string) func(int, message.Attributes) {
	return func(i int, a message.Attributes) { a["tenant"], a["id"] = name, fmt.Sprint(name, i) }
}

// TestLimitKeepsTheRateAndTheBurst checks that the rate and the burst are neither exceeded nor missed over any time.
func TestLimitKeepsTheRateAndTheBurst(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]relay.LimitConfig{
		"alone":           {Rate: 10, Burst: 5, Wait: time.Hour},
		"one by one":      {Rate: 10, Burst: 5, Wait: time.Hour, Batch: 1},
		"and concurrency": {Rate: 10, Burst: 5, Wait: time.Hour, Concurrency: 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				out := &meter{}
				l := limit(t, out, cfg)
				var side sync.WaitGroup
				begun := time.Now()
				for range 7 {
					side.Go(func() {
						for _, err := range l.Publish(t.Context(), rawEvents(5)) {
							if err != nil {
								t.Error(err)
							}
						}
					})
				}
				side.Wait()
				if took := time.Since(begun).Round(time.Millisecond); took != 3*time.Second {
					t.Errorf("35 events took %v, want 3s for 30 behind a burst of 5", took)
				}
				for i := range out.times {
					for j := i; j < len(out.times); j++ {
						if n, most := j-i+1, 5+10*out.times[j].Sub(out.times[i]).Seconds()+0.01; float64(n) > most {
							t.Fatalf("%d events within %v", n, out.times[j].Sub(out.times[i]))
						}
					}
				}
				time.Sleep(time.Hour)
				begun = time.Now()
				l.Publish(t.Context(), rawEvents(5))
				if time.Since(begun) > 0 {
					t.Error("no burst after a pause")
				}
			})
		})
	}
}

// TestLimitGivesBackEventsThatWouldWaitTooLong checks that events that would wait too long are given back, and become due one
// after another within a minute.
func TestLimitGivesBackEventsThatWouldWaitTooLong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  relay.LimitConfig
		sent int
		took time.Duration
	}{
		"at once":         {relay.LimitConfig{Rate: 10, Burst: 1}, 1, 0},
		"a burst":         {relay.LimitConfig{Rate: 10, Burst: 5}, 5, 0},
		"and concurrency": {relay.LimitConfig{Rate: 10, Burst: 1, Concurrency: 100}, 1, 0},
		"two have time":   {relay.LimitConfig{Rate: 10, Burst: 1, Wait: 200 * time.Millisecond}, 2, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := limit(t, &meter{}, c.cfg)
				begun := time.Now()
				errs := l.Publish(t.Context(), rawEvents(2000))
				if took := time.Since(begun); took != c.took {
					t.Errorf("it waited for %v, want %v", took, c.took)
				}
				sent, waits := 0, []time.Duration(nil)
				for _, err := range errs {
					if err == nil {
						sent++
						continue
					}
					d, asked := message.RetryDelay(err)
					if !errors.Is(err, relay.ErrLater) || errors.Is(err, relay.ErrUnavailable) || !asked {
						t.Fatal(err)
					}
					waits = append(waits, d)
				}
				if sent != c.sent || !slices.IsSorted(waits[:500]) || slices.Max(waits) >= time.Minute {
					t.Errorf("%d sent, the others wait for %v to %v", sent, slices.Min(waits), slices.Max(waits))
				}
				if n := waits[100].Seconds(); n < 9 || n > 12 {
					t.Errorf("the hundredth waits for %v at ten a second", waits[100])
				}
				least, most := slices.Min(waits[700:]), slices.Max(waits[700:])
				if least < 30*time.Second || least > 31*time.Second || most < 59*time.Second {
					t.Errorf("those that are a minute away wait for %v to %v, want 30 s to a minute", least, most)
				}
			})
		})
	}
}

func TestLimitBoundsConcurrentCallsOverAllBatches(t *testing.T) {
	t.Parallel()
	for batch, calls := range map[int]int{0: 63, 10: 9} { // a call gets the events of one batch of the relay
		synctest.Test(t, func(t *testing.T) {
			out := &meter{took: time.Second}
			l := limit(t, out, relay.LimitConfig{Concurrency: 3, Batch: batch, Wait: time.Hour})
			var side sync.WaitGroup
			begun := time.Now()
			for range 3 {
				side.Go(func() { l.Publish(t.Context(), rawEvents(21)) })
			}
			side.Wait()
			if took := time.Since(begun); out.most != 3 || out.calls != calls || took != time.Duration(calls/3)*time.Second {
				t.Errorf("batch %d: %d at a time, %d calls, %v", batch, out.most, out.calls, took)
			}
		})
	}
}

func TestLimitSharesTheRateAmongTenants(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]relay.LimitConfig{
		"rate":        {Rate: 1000, Burst: 1, Wait: time.Hour, Tenant: byTenant},
		"concurrency": {Concurrency: 10, Wait: time.Hour, Tenant: byTenant},
		"weights":     {Rate: 1000, Burst: 1, Wait: time.Hour, Tenant: byTenant, Weight: func(tenant string) int { return map[string]int{"a": 4}[tenant] }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				out := &meter{took: 10 * time.Millisecond}
				l := limit(t, out, cfg)
				var side sync.WaitGroup
				for range 100 {
					side.Go(func() { l.Publish(t.Context(), rawEvents(100, ofTenant("a"))) })
				}
				synctest.Wait()
				begun := time.Now()
				l.Publish(t.Context(), rawEvents(10, ofTenant("b")))
				took := time.Since(begun)
				side.Wait()
				if all := time.Since(begun); all < 9*time.Second || len(out.events) != 10_010 {
					t.Errorf("all %d took %v", len(out.events), all)
				}
				share := 10 * 2 * time.Millisecond // ten of a thousand per second, half of it for each
				if name == "weights" {
					share = 10 * 5 * time.Millisecond
				}
				if took > 2*share+2*out.took {
					t.Errorf("ten events took %v, their share is %v", took, share)
				}
				if name == "weights" && took < share {
					t.Errorf("ten events of a light tenant took %v, their share is %v", took, share)
				}
			})
		})
	}
}

// TestLimitSendsNothingAfterItsContextEnds checks that no event waits longer than the context of its batch, and that none is
// sent afterwards.
func TestLimitSendsNothingAfterItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &meter{}
		l := limit(t, out, relay.LimitConfig{Rate: 1, Burst: 1, Wait: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		begun := time.Now()
		errs := l.Publish(ctx, append(rawEvents(10), rawEvents(10, func(_ int, a message.Attributes) { a["partitionkey"] = "k" })...))
		if took := time.Since(begun); took != 2500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		for i, err := range errs {
			if err != nil && !errors.Is(err, relay.ErrLater) {
				t.Errorf("event %d: %v", i, err)
			}
		}
		if n := len(out.ids()); n != 3 {
			t.Errorf("%d sent", n)
		}
		err := l.Publish(ctx, rawEvents(1))[0]
		if d, asked := message.RetryDelay(err); d != 0 || !asked {
			t.Errorf("a batch without time: %v, after %v", err, d)
		}
		time.Sleep(time.Minute)
		if n := len(out.ids()); n != 3 {
			t.Errorf("%d sent after the end", n-3)
		}
	})
}

// TestLimitGivesBackFollowersIfTheContextEndsDuringACall checks that an event is given back if its predecessor is still being
// sent when the context ends.
func TestLimitGivesBackFollowersIfTheContextEndsDuringACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &meter{took: time.Second}
		l := limit(t, out, relay.LimitConfig{Concurrency: 1, Wait: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		errs := l.Publish(ctx, rawEvents(3, func(_ int, a message.Attributes) { a["partitionkey"] = "k" }))
		if d, asked := message.RetryDelay(errs[2]); errs[0] != nil || d != 0 || !asked || len(out.ids()) != 2 {
			t.Errorf("%d sent, %v, the last after %v", len(out.ids()), errs, d)
		}
		time.Sleep(time.Minute)
		if n := len(out.ids()); n != 2 {
			t.Errorf("%d sent after the end", n-2)
		}
	})
}

// TestLimitReturnsAnOutageOnlyToEventsOfItsDestination checks that events waiting for an unavailable destination get its error,
// and others do not.
func TestLimitReturnsAnOutageOnlyToEventsOfItsDestination(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &meter{took: time.Second, answer: func(e *message.RawMessage) error {
			if e.Destination() == "dead" {
				return relay.Unavailable(errors.New("connection refused"))
			}
			return nil
		}}
		l := limit(t, relay.WithScope(out, byDestination), relay.LimitConfig{Concurrency: 2, Wait: time.Hour})
		errs := l.Publish(t.Context(), rawEvents(20, func(i int, a message.Attributes) { a["destination"] = []string{"dead", "alive"}[i%2] }))
		for i, err := range errs {
			if errors.Is(err, relay.ErrUnavailable) != (i%2 == 0) || i%2 == 1 && err != nil {
				t.Errorf("event %d: %v", i, err)
			}
		}
		if out.calls != 12 {
			t.Errorf("%d calls, want 2 that fail and 10", out.calls)
		}
		l.Publish(t.Context(), rawEvents(1, func(_ int, a message.Attributes) { a["destination"] = "dead" })) // no other event waits
	})
}

// TestLimitGivesPausedEventsBackWithoutAnOutage checks that an event with an error made by Later begins no outage here. It is
// given back with those behind it, and the others continue.
func TestLimitGivesPausedEventsBackWithoutAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &meter{took: time.Second, answer: func(e *message.RawMessage) error {
			if e.PartitionKey() == "paused" {
				return relay.Later(relay.ErrUnavailable, time.Minute)
			}
			return nil
		}}
		l := limit(t, out, relay.LimitConfig{Concurrency: 1, Wait: time.Hour})
		got := delays(l.Publish(t.Context(), rawEvents(5, func(i int, a message.Attributes) {
			a["partitionkey"] = []string{"paused", "b", "paused", "c", "d"}[i]
		}))...)
		if want := []time.Duration{time.Minute, -1, time.Minute, -1, -1}; !slices.Equal(got, want) || out.calls != 4 {
			t.Errorf("%v in %d calls, want %v in 4", got, out.calls, want)
		}
	})
}

// TestLimitKeepsOrderAndStopsAKeyAfterAFailure checks that events with the same key are published one after another, and none
// after a failed one.
func TestLimitKeepsOrderAndStopsAKeyAfterAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &meter{took: time.Second, answer: func(e *message.RawMessage) error {
			if e.ID() == "15" {
				return errors.New("refused")
			}
			return nil
		}}
		l := limit(t, out, relay.LimitConfig{Concurrency: 50, Wait: time.Hour})
		errs := l.Publish(t.Context(), rawEvents(20, func(i int, a message.Attributes) {
			if i >= 10 {
				a["partitionkey"] = "k"
			}
		}))
		ids := out.ids()
		keyed := slices.DeleteFunc(ids, func(id string) bool { return len(id) == 1 })
		if !slices.Equal(keyed, []string{"10", "11", "12", "13", "14", "15"}) {
			t.Errorf("%v", keyed)
		}
		for i, err := range errs {
			if errors.Is(err, relay.ErrLater) != (i > 15) || (err != nil) != (i >= 15) {
				t.Errorf("event %d: %v", i, err)
			}
			if d, _ := message.RetryDelay(err); d != 0 {
				t.Errorf("event %d is given back for %v", i, d)
			}
		}
	})
}

func TestLimitRejectsInvalidConfig(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]relay.LimitConfig{
		"set one of them": {},
		"Rate is -1":      {Rate: -1},
		"Rate is NaN":     {Rate: math.NaN()},
		"Rate is +Inf":    {Rate: math.Inf(1), Concurrency: 1},
		"Wait":            {Rate: 1, Wait: -1},
	} {
		if _, err := relay.Limit(newSink(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := relay.Limit(nil, relay.LimitConfig{Rate: 1}); err == nil {
		t.Error("a limit of nothing")
	}
}

func TestSmallTenantOvertakesTheBacklogOfAnother(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	tr := newTransactor(t, client)
	for i := range 10 {
		emitTo(t, tr, fmt.Sprint("big", i), "big", numbered(fmt.Sprint("big", i, "-"), 1000)...)
	}
	emitTo(t, tr, "small", "small", numbered("small-", 10)...)
	out := &meter{}
	l := limit(t, out, relay.LimitConfig{Rate: 500, Tenant: byDestination})
	start(t, tr, l, relay.Config{NoInline: true, Attempts: 1, SweepInterval: 100 * time.Millisecond})
	var before int
	redistest.Eventually(t, "the small tenant's events", func() bool {
		sent := out.ids()
		small := 0
		for i, id := range sent {
			if strings.HasPrefix(id, "small") {
				if small++; small == 10 {
					before = i
					return true
				}
			}
		}
		return false
	})
	t.Logf("ten events went out behind %d of another tenant's ten thousand", before)
	if before > 2500 {
		t.Error("a tenant waits for another's backlog")
	}
	if c := counts(t, tr); c.Parked > 0 || c.Sent+c.Pending != 10_010 {
		t.Errorf("%+v", c)
	}
}
