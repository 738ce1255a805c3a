package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/message"
)

func TestPublisherRemembersTenThousandWindowsForAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w windows
		known := func(key string) bool {
			_, known := w.of(key, time.Now())
			return known
		}
		for i := range maxWindows {
			w.set(strconv.Itoa(i), true)
		}
		w.set("0", true) // is no further one
		if once, known := w.of("9999", time.Now()); !once || !known {
			t.Error("one of ten thousand is forgotten")
		}
		w.set("further", false)
		if known("0") || !known("further") || len(w.known) != 1 {
			t.Errorf("%d are remembered, want the further one", len(w.known))
		}
		time.Sleep(time.Minute - 1)
		if !known("further") {
			t.Error("it is forgotten within a minute")
		}
		time.Sleep(time.Nanosecond)
		if known("further") {
			t.Error("it is remembered after a minute")
		}
	})
}

func TestTrimmerRemembersAThousandStreamsForTheirInterval(t *testing.T) {
	t.Parallel()
	var tr trimmer
	now := time.Now()
	for i := range maxTrimmed {
		if !tr.due(strconv.Itoa(i), now, time.Second) {
			t.Fatalf("%d is not due for the first time", i)
		}
	}
	if tr.due("0", now.Add(time.Second-1), time.Second) || !tr.due("further", now, time.Second) || len(tr.last) != 1 {
		t.Errorf("%d are remembered, want the further one", len(tr.last))
	}
	if tr.due("further", now.Add(time.Second-1), time.Second) || !tr.due("further", now.Add(time.Second), time.Second) {
		t.Error("it is not due after its interval, or before")
	}
}

func TestLedgerWakesTheOneWhoseTurnItIs(t *testing.T) {
	t.Parallel()
	l := newLedger(3)
	l.postpone(inFlight(t, l, "a")[0], 0)
	_, place := l.tryReserve(1, true) // the due one goes first
	if due, _, _ := l.takeDue(); len(due) != 1 || isOpen(place) {
		t.Errorf("%d are due, want one that wakes the reader", len(due))
	} else {
		l.postpone(due[0], 0)
	}
	l.wanted = true
	due, _, changed := l.takeDue()
	if n, _ := l.tryReserve(1, true); len(due) > 0 || n != 1 || isOpen(changed) {
		t.Errorf("%d are due, %d places, want a place that wakes who waits for the entry", len(due), n)
	}
	_, place = l.tryReserve(1, true)
	if l.release(1); isOpen(place) {
		t.Error("a release of a place that was not used wakes no reader")
	}
}

func TestLedgerWaitsForNoEntryThatIsDueMeanwhile(t *testing.T) {
	t.Parallel()
	l := newLedger(1)
	began := time.Now()
	l.now = func() time.Time { return began }
	l.postpone(inFlight(t, l, "a")[0], time.Second)
	l.now = func() time.Time { began = began.Add(999 * time.Millisecond); return began }
	if due, wait, _ := l.takeDue(); len(due) > 0 || wait < 0 {
		t.Errorf("%d are due, wait %v, want none, and no wait", len(due), wait)
	}
}

func TestLedgerCountsEntriesInFlight(t *testing.T) {
	t.Parallel()
	l := newLedger(4)
	es := inFlight(t, l, "flies", "waits", "shunned", "new")
	l.postpone(es[1], time.Hour)
	l.shun(es[2], time.Hour)
	if n := l.inFlight(); n != 2 {
		t.Errorf("%d are in flight, want 2", n)
	}
}

func TestWaitForADueEntryEndsAtOnceOrWithAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for wait, want := range map[time.Duration]time.Duration{0: 0, time.Second: time.Second, -1: time.Minute} {
			changed := make(chan struct{})
			began := time.Now()
			time.AfterFunc(time.Minute, func() { close(changed) })
			if waitDue(t.Context(), wait, changed); time.Since(began) != want {
				t.Errorf("waited %v instead of %v for %v", want, time.Since(began), wait)
			}
			synctest.Wait()
			<-changed
		}
	})
}

func TestEndOfItsContextHidesTheErrorOfAConsumer(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	refused, wrapped := errors.New("no"), fmt.Errorf("two: %w", ErrSubscribed)
	for _, c := range []struct {
		ctx       context.Context
		err, want error
	}{{t.Context(), refused, refused}, {ended, refused, nil}, {t.Context(), ErrSubscribed, ErrSubscribed}, {ended, ErrSubscribed, ErrSubscribed}, {ended, wrapped, wrapped}} {
		if err := unlessEnded(c.ctx, c.err); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%v becomes %v, want %v", c.err, err, c.want)
		}
	}
}

func TestConsumeNeedsATransactorAndAProcessor(t *testing.T) {
	t.Parallel()
	some := ProcessFunc(func(context.Context, *message.RawMessage) error { return nil })
	for _, c := range []struct {
		t    *luatx.Transactor
		p    Processor
		want string
	}{{nil, some, "needs a Transactor and a Processor"}, {new(luatx.Transactor), nil, "needs a Transactor and a Processor"}, {new(luatx.Transactor), ProcessFunc(nil), "the ProcessFunc is nil"}, {new(luatx.Transactor), some, ""}} {
		if err := checkConsume(c.t, c.p); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

func TestHalfOfTheConnectionsMayWait(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 12: 6} {
		one := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", PoolSize: size})
		many := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, PoolSize: size})
		if a, b := blockingReads(one), blockingReads(many); a != want || b != want {
			t.Errorf("of %d connections %d and %d may wait, want %d", size, a, b, want)
		}
		_, _ = one.Close(), many.Close()
	}
	if n := blockingReads(&reloading{}); n != 1 {
		t.Errorf("of an unknown client %d connections may wait, want 1", n)
	}
}

// reloading counts how often it reloads the state of its cluster.
type reloading struct {
	redis.UniversalClient

	times int
}

func (r *reloading) ReloadState(context.Context) { r.times++ }

func TestStateOfTheClusterIsReloadedWithoutAReply(t *testing.T) {
	t.Parallel()
	client := &reloading{}
	s := &subscription{Subscriber: &Subscriber{client: client, cfg: SubscriberConfig{}.withDefaults()}}
	s.outage.log = s.cfg.Logger
	for _, c := range []struct {
		err  error
		want int
	}{{replyError("ERR no"), 0}, {errors.New("connection refused"), 1}, {replyError("MOVED 1 127.0.0.1:1"), 1}} {
		if s.failed(t.Context(), "read", c.err); client.times != c.want {
			t.Errorf("after %v the state was reloaded %d times, want %d", c.err, client.times, c.want)
		}
	}
}

func TestOnlyARequestThatWasSentMayStillArrive(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{errors.New("connection reset"): true, context.DeadlineExceeded: true, context.Canceled: false, replyError("ERR no"): false} {
		r := &reader{subscription: &subscription{}}
		if r.lost(err); r.doubt.Load() != want || !r.recoverOwn.Load() {
			t.Errorf("%v: may arrive %t, want %t", err, r.doubt.Load(), want)
		}
	}
}

func TestObserversAreNotifiedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	var got []string
	of := func(name string) Observer {
		return Observer{
			Delivered:    func(context.Context, Delivered) { got = append(got, name+" delivered") },
			Settled:      func(context.Context, Settled) { got = append(got, name+" settled") },
			DeadLettered: func(context.Context, DeadLettered) { got = append(got, name+" dead") },
		}
	}
	o := of("first").And(of("second"))
	o.Delivered(t.Context(), Delivered{})
	o.Settled(t.Context(), Settled{})
	o.DeadLettered(t.Context(), DeadLettered{})
	if want := []string{"first delivered", "second delivered", "first settled", "second settled", "first dead", "second dead"}; !slices.Equal(got, want) {
		t.Errorf("notified %q", got)
	}
}

func TestReportOfAMemberNamesAtMostSomePartitionsThatItHolds(t *testing.T) {
	t.Parallel()
	m := &member{PartitionedSubscriber: &PartitionedSubscriber{}, name: "me"}
	m.cfg.Stream, m.cfg.Group = "orders", "shop"
	m.inFlight.Store(7)
	for i := range process.MaxPartitions + 4 {
		sub := &subscription{Subscriber: &Subscriber{cfg: SubscriberConfig{Stream: strconv.Itoa(i)}}}
		m.partitions = append(m.partitions, &partition{subscription: sub, held: i != 1})
	}
	r := m.report()
	if r.Holding != process.MaxPartitions+3 || len(r.Partitions) > process.MaxPartitions || !slices.Equal(r.Partitions[:2], []string{"0", "2"}) {
		t.Errorf("holds %d: %q", r.Holding, r.Partitions)
	}
	if r.Stream != "orders" || r.Group != "shop" || r.Consumer != "me" || r.InFlight != 7 {
		t.Errorf("%+v", r)
	}
}

func TestPanicOfAnAggregateIsAnError(t *testing.T) {
	t.Parallel()
	m := &member{PartitionedSubscriber: &PartitionedSubscriber{}}
	m.cfg.Aggregate = func(*message.RawMessage) (string, error) { panic("of an Aggregate") }
	if _, err := (&partition{m: m}).aggregateOf(nil); err == nil || !strings.Contains(err.Error(), "of an Aggregate") {
		t.Errorf("%v, want the panic", err)
	}
}

func TestRunOfAPartitionEndsBeforeWhatCannotBeGivenOutWithIt(t *testing.T) {
	t.Parallel()
	of := func(aggregate string, change ...func(*item)) *item {
		it := &item{aggregate: aggregate, msg: message.NewRaw(nil, nil, nil)}
		for _, c := range change {
			c(it)
		}
		return it
	}
	size := func(n int64) func(*item) { return func(it *item) { it.size = n } }
	again := func(it *item) { it.again = true }
	early := func(it *item) { it.early = true }
	nacked := func(it *item) { it.nacks = 1 }
	refused := func(it *item) { it.msg, it.err = nil, errors.New("no") }
	for name, c := range map[string]struct {
		ahead []*item
		want  int
	}{
		"all that may be":                 {[]*item{of("a"), of("b"), of("c"), of("d")}, 3},
		"there are no more":               {[]*item{of("a"), of("b")}, 2},
		"the same aggregate":              {[]*item{of("a"), of("b"), of("a")}, 2},
		"one that is read again":          {[]*item{of("a"), of("b", again)}, 1},
		"one that cannot be decoded":      {[]*item{of("a"), of("b", refused)}, 1},
		"exactly the bound":               {[]*item{of("a", size(4)), of("b", size(6)), of("c")}, 3},
		"beyond the bound":                {[]*item{of("a", size(4)), of("b", size(7))}, 1},
		"beyond the bound by a byte":      {[]*item{of("a", size(10)), of("b", size(1))}, 1},
		"alone beyond the bound":          {[]*item{of("a", size(11)), of("b")}, 2},
		"an early one":                    {[]*item{of("a"), of("b", early)}, 2},
		"an early one behind a failed":    {[]*item{of("a", nacked), of("b", early)}, 1},
		"a failed one that was early":     {[]*item{of("a", nacked, early), of("b")}, 2},
		"one behind a failed one, untied": {[]*item{of("a", nacked), of("b")}, 2},
	} {
		sub := &subscription{Subscriber: &Subscriber{cfg: SubscriberConfig{MaxDecodedBytes: 10}}}
		p := &partition{subscription: sub, m: &member{most: 3}, ahead: c.ahead}
		if got := p.run(); len(got) != c.want {
			t.Errorf("%s: %d, want %d", name, len(got), c.want)
		}
		if strings.HasPrefix(name, "beyond") && (c.ahead[1].msg != nil || c.ahead[1].size != 0) {
			t.Errorf("%s: it stays decoded", name)
		}
	}
}

func TestUntriedItemOfAPartitionIsGivenOutAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := time.Now()
		time.Sleep(time.Hour)
		early := fmt.Errorf("no: %w", &message.EarlyError{After: "1-0"})
		for name, c := range map[string]struct {
			err                       error
			after                     string
			early, again, tenure, due bool
		}{
			"behind another that is not committed": {err: early, after: "1-0", early: true},
			"the first of its run":                 {err: early, again: true, tenure: true, due: true},
			"for another reason":                   {err: errors.New("no"), after: "1-0", due: true},
		} {
			sub := &subscription{Subscriber: &Subscriber{cfg: SubscriberConfig{NackBackoff: message.Backoff{Base: time.Hour, Max: time.Hour}}}}
			tenure := new(message.Tenure)
			p := &partition{subscription: sub, tenure: tenure}
			it := &item{entry: entry{id: "2-0", deliveries: 3, nacks: 4, first: first}, err: c.err, at: message.Position{After: c.after}}
			got := p.renewed(it)
			nacks := 4
			if c.due {
				nacks++
			}
			if got.id != "2-0" || got.deliveries != 3 || !got.first.Equal(first) || got.nacks != nacks || got.early != c.early || got.again != c.again || got.due.IsZero() == c.due || (p.tenure != tenure) != c.tenure {
				t.Errorf("%s: %+v, another tenure: %t", name, got, p.tenure != tenure)
			}
		}
	})
}
