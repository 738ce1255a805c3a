package trigger

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestStallBeginsOneTimeoutAfterTheFirstDeliveryOrTheLastSuccess(t *testing.T) {
	t.Parallel()
	const timeout = time.Minute
	type step struct {
		wait    time.Duration
		act     func(p *progress)
		stalled bool // after the wait
	}
	var open *unfinished
	begin := func(p *progress) { open = p.begin(&Delivery{}) }
	fail := func(delay time.Duration) func(p *progress) {
		return func(p *progress) {
			p.fail(open, delay, true)
			p.end(open, false)
		}
	}
	for name, steps := range map[string][]step{
		"one hangs":         {{0, begin, false}, {timeout, nil, false}, {1, nil, true}},
		"another one comes": {{0, begin, false}, {timeout / 2, begin, false}, {timeout/2 + 1, nil, true}},
		"one failed in time": {
			{0, begin, false}, {0, fail(0), false}, {timeout, begin, false}, {1, nil, true},
		},
		"the failure is long ago": {
			{0, begin, false}, {0, fail(0), false}, {timeout + 1, begin, false}, {timeout, nil, false}, {1, nil, true},
		},
		"it fails, and nothing comes": {
			{0, begin, false}, {1, fail(0), false}, {timeout, nil, true}, {1, nil, false},
		},
		"deferred by the timeout": {{0, begin, false}, {1, fail(timeout), false}, {timeout, nil, true}},
		"deferred by more":        {{0, begin, false}, {1, fail(timeout + 1), false}, {timeout, nil, false}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newProgress(timeout)
			for i, s := range steps {
				time.Sleep(s.wait)
				if got := p.stalled(); got != s.stalled {
					t.Errorf("%s, step %d: stalled %t", name, i, got)
				}
				if s.act != nil {
					s.act(p)
				}
			}
		})
	}
}

func TestOldestIsTheLongestTimeSinceAnEntryWasAdded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProgress(time.Minute)
		for i := range 10 {
			p.begin(&Delivery{Time: time.Now().Add(time.Duration(i-10) * time.Second)})
		}
		for range 20 { // in another order each time
			if got := p.oldest(); got != 10*time.Second {
				t.Fatalf("%v", got)
			}
		}
		p.begin(&Delivery{ID: "no time", Time: time.Now().Add(-time.Hour)})
		if got := p.oldest(); got != time.Hour {
			t.Errorf("%v, want the time since the receipt of an entry whose id has no time", got)
		}
	})
}
