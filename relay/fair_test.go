package relay

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/message"
)

// TestTenantsWithoutWaitingEventsAreForgotten checks the bound of a limiter's state, and that it keeps tenants that wait or
// have events that come back.
func TestTenantsWithoutWaitingEventsAreForgotten(t *testing.T) {
	t.Parallel()
	l, now := newLimiter(LimitConfig{Rate: 1, Burst: 1}), time.Now()
	for i := range manyTenants {
		l.tenant(&ticket{tenant: fmt.Sprint(i)}, now)
	}
	l.tenants["3"].queue = make([]*ticket, 1)
	l.tenants["4"].horizon = now.Add(time.Second)
	if len(l.tenants) != manyTenants {
		t.Fatalf("%d tenants, want %d", len(l.tenants), manyTenants)
	}
	l.tenant(&ticket{tenant: "another"}, now)
	for _, name := range []string{"3", "4", "another"} {
		if l.tenants[name] == nil {
			t.Errorf("tenant %s is forgotten", name)
		}
	}
	if len(l.tenants) != 3 {
		t.Errorf("%d tenants, want 3", len(l.tenants))
	}
}

// TestALimiterIsIdleOnceItsBucketIsFullAgain checks when a limiter can be forgotten without effect.
func TestALimiterIsIdleOnceItsBucketIsFullAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(LimitConfig{Rate: 10, Burst: 3})
		if !l.idle() {
			t.Error("a new limiter is not idle")
		}
		for range 3 {
			if !l.bucket.takeToken(time.Now()) {
				t.Error("no token of a full bucket")
			}
		}
		for range 3 {
			if l.idle() {
				t.Error("a limiter is idle that lacks tokens")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if !l.idle() {
			t.Error("a limiter that has all tokens is not idle")
		}
		for name, busy := range map[string]func(by int){
			"waiting": func(by int) { l.waiting += by },
			"flying":  func(by int) { l.flying += by },
			"armed":   func(by int) { l.armed = by > 0 },
		} {
			busy(1)
			if l.idle() {
				t.Errorf("a limiter is idle with something %s", name)
			}
			busy(-1)
		}
	})
}

// TestUnusedScopesAreForgotten checks the bound of Limit's state, also if a rate keeps a limiter for a while.
func TestUnusedScopesAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error { return make([]error, len(events)) })
		scoped, err := Limit(WithScope(out, (*message.RawMessage).Destination), LimitConfig{Rate: 10, Burst: 1})
		if err != nil {
			t.Fatal(err)
		}
		l := scoped.(*limited)
		publish := func(scope string) {
			if err := l.Publish(t.Context(), []*message.RawMessage{message.NewRaw(nil, message.Attributes{"destination": scope}, nil)})[0]; err != nil {
				t.Fatal(err)
			}
		}
		used := l.enter("used")
		for i := range manyOutages - 1 {
			publish(fmt.Sprint(i))
			time.Sleep(time.Nanosecond)
		}
		if n := len(l.limiters); n != manyOutages {
			t.Errorf("%d limiters while all of %d lack a token", n, manyOutages)
		}
		time.Sleep(100 * time.Millisecond)
		publish("another")
		if n := len(l.limiters); n != 2 || l.enter("used") != used {
			t.Errorf("%d limiters, want the one that is used and the new one", n)
		}
	})
}
