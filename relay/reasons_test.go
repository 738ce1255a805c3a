package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/message"
)

type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

func TestErrorOfAStreamsServerIsUnavailableUnlessTheEntryIsRejected(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{io.ErrUnexpectedEOF, true},
		{message.Permanent(io.ErrUnexpectedEOF), false},
		{answer("OOM command not allowed"), true},
		{answer("READONLY You can't write"), true},
		{answer("NOREPLICAS x"), true},
		{answer("MISCONF x"), true},
		{answer("LOADING x"), true},
		{answer("BUSY x"), true},
		{answer("MASTERDOWN x"), true},
		{answer("CLUSTERDOWN x"), true},
		{answer("TRYAGAIN x"), true},
		{answer("NOAUTH x"), true},
		{answer("NOPERM x"), true},
		{answer("WRONGPASS x"), true},
		{fmt.Errorf("failed to authenticate: %w", answer("WRONGPASS x")), true},
		{answer("MOVED 1 127.0.0.1:1"), true},
		{answer("ASK 1 127.0.0.1:1"), true},
		{answer("ERR max number of clients reached"), true},
		{fmt.Errorf("wrapped: %w", answer("NOPERM x")), true},
		{answer("WRONGTYPE x"), false},
		{answer("ERR OOM"), false},
	} {
		if got := brokers(c.err); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}

func TestClassOfAnErrorIsItsOwnOrThatOfADeadline(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err             error
		otherwise, want string
	}{
		{Classify("http 422", errors.New("x")), "other", "http_422"},
		{fmt.Errorf("wrapped: %w", Classify("a", errors.New("x"))), "", "a"},
		{Classify(" ", errors.New("x")), "other", "other"},
		{context.DeadlineExceeded, "", "timeout"},
		{context.DeadlineExceeded, "other", "other"},
		{errors.New("x"), "", ""},
		{errors.New("x"), "other", "other"},
	} {
		if got := classOf(c.err, c.otherwise); got != c.want {
			t.Errorf("%v or %q has the class %q, want %q", c.err, c.otherwise, got, c.want)
		}
	}
	if Classify("a", nil) != nil || Unavailable(nil) != nil || Later(nil, time.Second) != nil {
		t.Error("no error became one")
	}
}

func TestScopeOfAPublisherThatPanicsIsEmpty(t *testing.T) {
	t.Parallel()
	event := message.NewRaw(nil, message.Attributes{message.AttrDestination: "d"}, nil)
	for want, p := range map[string]Publisher{
		"d": scoped{nil, (*message.RawMessage).Destination},
		"":  scoped{nil, func(*message.RawMessage) string { panic("no scope") }},
	} {
		if got := scopeOf(p, event); got != want {
			t.Errorf("scope is %q, want %q", got, want)
		}
	}
	if got := scopeOf(PublisherFunc(nil), event); got != "" {
		t.Errorf("scope of a Publisher without scopes is %q", got)
	}
}

func TestEndOfASubscriptionIsLoggedOnceAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o listenOutage
		for i, want := range []bool{true, false, false, true, false} {
			if i > 0 {
				time.Sleep(20 * time.Minute)
			}
			if got := o.first(); got != want {
				t.Errorf("after %d times 20 minutes: %t", i, got)
			}
		}
	})
}

func TestObserverReceivesTheResultOfEachEvent(t *testing.T) {
	t.Parallel()
	var got Settled
	o := Observer{Settled: func(_ context.Context, s Settled) { got = s }}
	log := slog.New(slog.DiscardHandler)
	batch := []shard.Settlement{{ID: "0"}, {ID: "1"}, {ID: "2"}, {ID: "3", Error: "why"}, {ID: "4", Class: "odd"}, {ID: "5"}}
	o.settled(t.Context(), log, 7, batch, []string{settle.Sent, settle.Retry, settle.GiveBack, settle.Park, settle.Park, "stale"})
	want := Settled{Slot: 7, Sent: 1, Failed: 1, Returned: 1, Lost: 1, Parked: []Parked{{"3", "exhausted", "why"}, {"4", "odd", ""}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	o.crashed(t.Context(), log, 8, 2)
	if want := (Settled{Slot: 8, Parked: []Parked{{Class: "crashed"}, {Class: "crashed"}}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	o.Settled = nil
	o.settled(t.Context(), log, 7, batch, []string{settle.Sent})
	o.crashed(t.Context(), log, 8, 2)
}

func TestBarrierRejectsValuesOutsideItsBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		barrier Barrier
		want    string
	}{
		{Barrier{}, ""},
		{Barrier{Timeout: -1}, ""}, // without replicas there is no barrier
		{Barrier{Replicas: -1, Timeout: time.Second}, "Replicas is -1"},
		{Barrier{Replicas: 1, Timeout: time.Millisecond}, ""},
		{Barrier{Replicas: 1, Timeout: time.Millisecond - 1}, "Timeout is 999.999µs"},
		{Barrier{Replicas: 1, Timeout: 10 * time.Second}, ""},
		{Barrier{Replicas: 1, Timeout: 10*time.Second + 1}, "a third of Lease"},
	} {
		if err := c.barrier.validate(30 * time.Second); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.barrier, err)
		}
	}
}

func TestEventsBehindAFailedOneWithTheSameKeyAreNotPublished(t *testing.T) {
	t.Parallel()
	refused, down := errors.New("refused"), Unavailable(errors.New("down"))
	for name, c := range map[string]struct {
		err  func() error
		want error // of the events behind it
	}{
		"refused":     {func() error { return refused }, errBehind},
		"unavailable": {func() error { return down }, down},
		"later":       {func() error { return Later(refused, time.Minute) }, ErrLater},
		"a panic":     {func() error { panic("odd") }, errBehind},
	} {
		calls := 0
		p := Func(func(context.Context, *message.RawMessage) error {
			calls++
			return c.err()
		}, FuncConfig{Key: func(*message.RawMessage) string { return "k" }})
		events := []*message.RawMessage{message.NewRaw(nil, nil, nil), message.NewRaw(nil, nil, nil), message.NewRaw(nil, nil, nil)}
		errs := p.Publish(t.Context(), events)
		if calls != 1 || len(errs) != 3 || errs[0] == nil || !errors.Is(errs[1], c.want) || !errors.Is(errs[2], c.want) {
			t.Errorf("%s: %d calls, %v", name, calls, errs)
		}
		wait, _ := message.RetryDelay(errs[0])
		for i, err := range errs[1:] {
			if d, asked := message.RetryDelay(err); d != wait || asked != (name != "unavailable") {
				t.Errorf("%s: event %d is given back for %v, want %v", name, i+1, d, wait)
			}
		}
		if !errors.Is(errs[1], ErrLater) && !errors.Is(errs[1], ErrUnavailable) {
			t.Errorf("%s: the event behind it loses an attempt: %v", name, errs[1])
		}
	}
}

func TestReportListsTheOldestLeasesAndForgetsEndedOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c claims
		c.add(1, "ends", 1, time.Second)
		c.add(1, "empty", 0, time.Hour)
		time.Sleep(time.Millisecond)
		for slot := range process.MaxLeases {
			c.add(process.MaxLeases-slot, "later", 1, time.Hour)
		}
		if first := c.list(time.Now())[0]; first.Lease != "ends" || first.Slot != 1 || first.Events != 1 {
			t.Errorf("the oldest lease is %+v", first)
		}
		time.Sleep(time.Second)
		c.add(1, "last", 3, time.Hour)
		all := c.list(time.Now())
		if len(all) != process.MaxLeases || len(c.open) != process.MaxLeases+1 {
			t.Fatalf("%d leases are listed, %d known", len(all), len(c.open))
		}
		for i, lease := range all {
			if lease.Lease != "later" || lease.Slot != i+1 || lease.Events != 1 || time.Since(lease.Since) != time.Second {
				t.Errorf("lease %d is %+v", i, lease)
			}
		}
		c.end(1, "last")
		c.settled(1, []shard.Settlement{{ID: "a", Lease: "last"}, {ID: "b"}, {ID: "c", Lease: "unknown"}})
		if h := c.open[claimed{1, "last"}]; h == nil || h.events != 1 {
			t.Errorf("2 of 3 events have ended: %+v", h)
		}
		if c.end(1, "last"); c.open[claimed{1, "last"}] != nil {
			t.Error("a lease without events is known")
		}
	})
}
