package relay_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// delays returns for how long events are given back, or -1 for events that are not.
func delays(errs ...error) []time.Duration {
	waits := make([]time.Duration, len(errs))
	for i, err := range errs {
		waits[i] = -1
		if d, asked := message.RetryDelay(err); asked && errors.Is(err, relay.ErrLater) {
			waits[i] = d.Round(time.Millisecond)
		}
	}
	return waits
}

// TestLimitGivesEventsBackUntilTheirExpectedTurn checks that events given back are due at their expected turn, by the rate and
// by the duration of calls.
func TestLimitGivesEventsBackUntilTheirExpectedTurn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  relay.LimitConfig
		took []time.Duration // durations of earlier calls
		want []time.Duration // results of three later events
	}{
		"a rate":             {relay.LimitConfig{Rate: 0.5, Burst: 1}, nil, []time.Duration{-1, 6 * time.Second, 8 * time.Second}},
		"one call at a time": {relay.LimitConfig{Concurrency: 1}, []time.Duration{time.Second}, []time.Duration{-1, 3 * time.Second, 4 * time.Second}},
		"calls get slower": {
			relay.LimitConfig{Concurrency: 1},
			[]time.Duration{time.Second, 2 * time.Second},
			[]time.Duration{-1, 3300 * time.Millisecond, 4400 * time.Millisecond},
		},
		"two calls":             {relay.LimitConfig{Concurrency: 2}, []time.Duration{time.Second}, []time.Duration{-1, -1, 2 * time.Second}},
		"the rate is slower":    {relay.LimitConfig{Concurrency: 1, Rate: 0.5, Burst: 2}, []time.Duration{time.Second}, []time.Duration{-1, 6 * time.Second, 8 * time.Second}},
		"nobody knows how long": {relay.LimitConfig{Concurrency: 1}, nil, []time.Duration{-1, -1, -1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				out := &meter{}
				l := limit(t, out, c.cfg)
				for _, out.took = range c.took {
					l.Publish(t.Context(), rawEvents(1))
				}
				if got := delays(l.Publish(t.Context(), rawEvents(3))...); !slices.Equal(got, c.want) {
					t.Errorf("three events are given back for %v, want %v", got, c.want)
				}
			})
		})
	}
}

func TestLimitGivesBackEventsIfAllCallsAreBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limit(t, &meter{took: time.Second}, relay.LimitConfig{Concurrency: 2})
		l.Publish(t.Context(), rawEvents(1))
		var side sync.WaitGroup
		side.Go(func() { l.Publish(t.Context(), rawEvents(1)) })
		synctest.Wait()
		if got, want := delays(l.Publish(t.Context(), rawEvents(3))...), []time.Duration{-1, 1500 * time.Millisecond, 2 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		side.Wait()
	})
}

func TestLimitLetsEachTenantProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		weight := func(tenant string) int { return map[string]int{"a": 100}[tenant] }
		l := limit(t, &meter{}, relay.LimitConfig{Rate: 10, Burst: 1, Wait: time.Second, Tenant: byTenant, Weight: weight})
		var side sync.WaitGroup
		side.Go(func() { l.Publish(t.Context(), rawEvents(5, ofTenant("a"))) })
		synctest.Wait()
		if got := delays(l.Publish(t.Context(), rawEvents(2, ofTenant("b")))...); got[0] != -1 || got[1] < 0 {
			t.Errorf("two events are given back for %v, want the second one alone", got)
		}
		side.Wait()
	})
}

func TestLimitContinuesAfterACallLeaves(t *testing.T) {
	t.Parallel()
	for name, tenants := range map[string][2]string{"one tenant": {"a", "a"}, "two tenants": {"a", "b"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				out := &meter{}
				l := limit(t, out, relay.LimitConfig{Rate: 10, Burst: 1, Wait: time.Hour, Tenant: byTenant})
				var side sync.WaitGroup
				side.Go(func() {
					for i, err := range l.Publish(t.Context(), rawEvents(3, ofTenant(tenants[0]))) {
						if err != nil {
							t.Errorf("event %d: %v", i, err)
						}
					}
				})
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
				defer cancel()
				l.Publish(ctx, rawEvents(5, ofTenant(tenants[1])))
				side.Wait()
				l.Publish(t.Context(), rawEvents(1, ofTenant("another")))
			})
		})
	}
}

// TestLimitTurnsFollowTheWeightsOfTenants checks that each turn has as many events as the tenant's weight, including the first.
func TestLimitTurnsFollowTheWeightsOfTenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		weight := func(tenant string) int { return map[string]int{"a": 2}[tenant] }
		if got, want := turns(t, weight, 0), []string{"a0", "a1", "b0", "a2", "a3", "b1", "a4", "b2"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if got, want := turns(t, nil, 0), []string{"a0", "a1", "b0", "a2", "b1", "a3", "b2", "a4"}; !slices.Equal(got, want) {
			t.Errorf("without weights %v, want %v", got, want)
		}
	})
}

// turns returns the order of five events of the tenant a and three of b. After a while it ends the context of an earlier call.
func turns(t *testing.T, weight func(string) int, after time.Duration) []string {
	t.Helper()
	out := &meter{}
	l := limit(t, out, relay.LimitConfig{Rate: 10, Burst: 1, Wait: time.Hour, Tenant: byTenant, Weight: weight})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l.Publish(ctx, rawEvents(1, ofTenant("earlier")))
	<-time.After(100 * time.Millisecond)
	time.AfterFunc(after, cancel)
	var side sync.WaitGroup
	for tenant, n := range map[string]int{"a": 5, "b": 3} {
		side.Go(func() {
			if tenant == "b" {
				<-time.After(time.Nanosecond)
			}
			l.Publish(t.Context(), rawEvents(n, ofTenant(tenant)))
		})
	}
	side.Wait()
	return out.ids()[1:]
}

func TestLimitKeepsTheTurnsIfTheContextOfAFinishedCallEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		weight := func(string) int { return 2 }
		want := []string{"a0", "a1", "b0", "b1", "a2", "a3", "b2", "a4"}
		for after := 50 * time.Millisecond; after < 800*time.Millisecond; after += 100 * time.Millisecond {
			if got := turns(t, weight, after); !slices.Equal(got, want) {
				t.Errorf("it ends after %v: %v, want %v", after, got, want)
			}
		}
	})
}

// TestLimitOrdersEventsByItsKey checks it with events whose partition keys are all the same.
func TestLimitOrdersEventsByItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &meter{took: time.Second, answer: func(e *message.RawMessage) error {
			if e.ID() == "2" {
				return errors.New("refused")
			}
			return nil
		}}
		l := limit(t, out, relay.LimitConfig{Concurrency: 50, Wait: time.Hour, Key: (*message.RawMessage).Subject})
		var got []string
		for _, err := range l.Publish(t.Context(), rawEvents(6, func(i int, a message.Attributes) {
			a["partitionkey"] = "one"
			if i%2 == 0 {
				a["subject"] = "k"
			}
		})) {
			got = append(got, fate(err))
		}
		if want := []string{"sent", "sent", "refused", "sent", "later", "sent"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}
