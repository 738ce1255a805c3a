package relay

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/message"
)

var errRefusedConnection = errors.New("connection refused")

func newOutages(out *bytes.Buffer) *outages {
	return &outages{log: slog.New(slog.NewTextHandler(out, nil)), cap: time.Second, most: 2}
}

func TestEndOfAnOutageIsReportedAfterItsBeginning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutages(&bytes.Buffer{})
		var over []bool
		o.notify = func(_ context.Context, out Outage) {
			if !out.Over {
				time.Sleep(time.Minute)
			}
			over = append(over, out.Over)
		}
		first, second := o.enter("a", 1), o.enter("a", 1)
		go o.note(t.Context(), "a", first, []error{Unavailable(errRefusedConnection)})
		synctest.Wait()
		o.note(t.Context(), "a", second, []error{nil})
		if !slices.Equal(over, []bool{false, true}) {
			t.Errorf("reported %v", over)
		}
	})
}

// TestOutageAffectsOneScopeAndPausesLongerEachTime checks that an outage affects one destination, is reported once, ends after
// one batch succeeds, and pauses longer with every failed probe.
func TestOutageAffectsOneScopeAndPausesLongerEachTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o := newOutages(&log)
		down := []error{nil, Unavailable(errRefusedConnection)}
		first, second := o.enter("a", 2), o.enter("a", 2)
		if !first.open || first.probe || !second.open || o.note(t.Context(), "a", first, down) <= 0 {
			t.Fatal("two batches go out side by side while nothing is known to be wrong")
		}
		before := o.down["a"].until
		o.note(t.Context(), "a", second, down)
		if o.down["a"].tries != 1 || o.down["a"].until != before {
			t.Error("what was under way when the outage began made it longer")
		}
		other := o.enter("b", 1)
		if o.left() > 0 || !other.open {
			t.Error("another destination is held up")
		}
		o.note(t.Context(), "b", other, []error{nil})
		for tries := 1; tries < 10; tries++ {
			left := time.Until(o.down["a"].until)
			if ceiling := o.ceiling(tries); left < ceiling/2 || left > ceiling {
				t.Errorf("try %d: a pause of %v, want %v to %v", tries, left, ceiling/2, ceiling)
			}
			if held := o.enter("a", 1); held.open || held.wait < left {
				t.Errorf("try %d: %+v while paused for %v", tries, held, left)
			}
			time.Sleep(left)
			probe := o.enter("a", 1)
			if !probe.open || !probe.probe {
				t.Fatalf("try %d: no probe after the pause: %+v", tries, probe)
			}
			if other := o.enter("a", 1); other.open || other.wait < o.ceiling(tries)/2 {
				t.Errorf("try %d: %+v beside a probe", tries, other)
			}
			o.note(t.Context(), "a", probe, down[1:])
		}
		time.Sleep(time.Second)
		o.note(t.Context(), "a", o.enter("a", 1), []error{errors.New("refused: it answers")})
		one, two, three := o.enter("a", 1), o.enter("a", 1), o.enter("a", 1)
		if !one.open || one.probe || !two.open || three.open {
			t.Errorf("the outage does not end, or lets too many in: %+v %+v %+v", one, two, three)
		}
		o.note(t.Context(), "a", one, []error{nil})
		o.note(t.Context(), "a", two, []error{nil})
		if len(o.down) != 0 {
			t.Errorf("%v is remembered of a scope that is well", o.down)
		}
		for level, line := range map[string]string{
			"ERROR": `msg="relay: publisher unavailable" destination=a error="connection refused"`,
			"INFO":  `msg="relay: publisher available" destination=a tries=10`,
		} {
			if strings.Count(log.String(), "level="+level+" "+line+"\n") != 1 {
				t.Errorf("the log has no line %s, or several:\n%s", line, log.String())
			}
		}
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("%d lines of the log, want one for the beginning and one for the end:\n%s", n, log.String())
		}
	})
}

// TestOutageNotifiesItsBeginningAndItsEnd checks the notifications of the shortest outage, and that it leaves no state.
func TestOutageNotifiesItsBeginningAndItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutages(new(bytes.Buffer))
		var told []Outage
		o.notify = func(_ context.Context, of Outage) { told = append(told, of) }
		began := time.Now()
		pause := o.note(t.Context(), "a", o.enter("a", 1), []error{Unavailable(errRefusedConnection)})
		time.Sleep(pause)
		over := time.Now()
		if pause := o.note(t.Context(), "a", o.enter("a", 1), []error{nil}); pause != 0 || len(o.down) != 0 {
			t.Errorf("a pause of %v once it is over, %v is remembered", pause, o.down)
		}
		if len(told) != 2 || told[0].Over || !told[0].At.Equal(began) || !errors.Is(told[0].Err, errRefusedConnection) || told[0].Destination != "a" {
			t.Errorf("told of the beginning: %+v", told)
		}
		if len(told) != 2 || !told[1].Over || !told[1].At.Equal(over) || told[1].Err != nil || told[1].Destination != "a" {
			t.Errorf("told of the end: %+v", told)
		}
	})
}

// TestPausesOfDestinationsVaryAndDoubleUpToACap checks that the pauses of many destinations cover the upper half of their
// ceiling, which doubles up to a cap.
func TestPausesOfDestinationsVaryAndDoubleUpToACap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutages(new(bytes.Buffer))
		var pauses []time.Duration
		for i := range 900 {
			scope := strconv.Itoa(i)
			pauses = append(pauses, o.note(t.Context(), scope, o.enter(scope, 1), []error{Unavailable(errRefusedConnection)}))
		}
		least, most, ceiling := slices.Min(pauses), slices.Max(pauses), o.ceiling(1)
		if least < ceiling/2 || least > ceiling*51/100 || most > ceiling || most < ceiling*99/100 {
			t.Errorf("pauses of %v to %v, want %v to %v", least, most, ceiling/2, ceiling)
		}
		wide := outages{cap: 100 * time.Hour}
		if got := wide.ceiling(99); got != firstPause<<20 {
			t.Errorf("the ceiling of many tries is %v, want %v", got, firstPause<<20)
		}
		short := newOutages(new(bytes.Buffer))
		short.cap = 1
		if pause := short.note(t.Context(), "a", short.enter("a", 1), []error{Unavailable(errRefusedConnection)}); pause > 1 {
			t.Errorf("a pause of %v, want a nanosecond at most", pause)
		}
		for tries := range 100 {
			want := min(firstPause<<min(tries, 10), o.cap)
			if got := o.ceiling(tries); got != want {
				t.Errorf("the ceiling of try %d is %v, want %v", tries, got, want)
			}
		}
	})
}

func TestOutageWithoutScopesPausesTheWholeRelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutages(new(bytes.Buffer))
		first := o.enter("", 1)
		if o.left() != 0 || o.paused() {
			t.Errorf("%v left with one batch of two on its way", o.left())
		}
		second := o.enter("", 1)
		if o.left() != o.ceiling(0) || !o.paused() {
			t.Errorf("%v left with all batches on their way, want %v", o.left(), o.ceiling(0))
		}
		o.note(t.Context(), "", first, []error{nil})
		if o.paused() {
			t.Error("it is paused though a batch came back")
		}
		far := []error{Unavailable(message.RetryAfter(errRefusedConnection, time.Minute)), Unavailable(message.RetryAfter(errRefusedConnection, time.Second))}
		if pause := o.note(t.Context(), "", second, far); pause != time.Minute || o.left() != time.Minute {
			t.Errorf("a pause of %v, %v left, want the longest that was asked for", pause, o.left())
		}
		time.Sleep(time.Minute)
		if o.paused() {
			t.Error("it is paused though a probe may go out")
		}
		o.enter("", 1)
		if o.left() != o.ceiling(0) {
			t.Errorf("%v left beside a probe", o.left())
		}
	})
}

// TestOutageLastsAsLongAsTheDestinationRequests checks that the relay honors the delay that a destination requests, and that
// the due times of events given back unsent are spread.
func TestOutageLastsAsLongAsTheDestinationRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutages(new(bytes.Buffer))
		asked := Unavailable(message.RetryAfter(errRefusedConnection, time.Minute))
		if pause := o.note(t.Context(), "", o.enter("", 1), []error{asked}); pause != time.Minute || o.left() != time.Minute {
			t.Errorf("a pause of %v, %v left, want a minute", pause, o.left())
		}
		near, far := o.enter("", 1).wait, o.enter("", 10_000).wait
		if near < time.Minute || near > time.Minute+time.Second || far < time.Minute+10*time.Second || far > time.Minute+heldCap {
			t.Errorf("one event waits for %v, ten thousand after it for %v", near, far)
		}
		if last := o.enter("", 100_000).wait; last != time.Minute+heldCap {
			t.Errorf("the last of a long backlog waits for %v", last)
		}
		time.Sleep(time.Minute)
		probe := o.enter("", 1)
		if !probe.probe || !o.paused() {
			t.Error("others are claimed beside a probe")
		}
		o.note(t.Context(), "", probe, []error{Later(errors.New("no room"), 0)})
		if again := o.enter("", 1); !again.probe {
			t.Errorf("a probe that was not sent shows nothing: %+v", again)
		}
	})
}

func TestClassOfAnErrorIsThatOfClassify(t *testing.T) {
	t.Parallel()
	plain := errors.New("x")
	for want, err := range map[string]error{
		"failed":    plain,
		"http_422":  Unavailable(Classify("http_422", plain)),
		"two_words": message.Permanent(Classify(" two\n words ", plain)),
		"refused":   Classify("", plain),
	} {
		otherwise := "failed"
		if want == "refused" {
			otherwise = want
		}
		if got := classOf(err, otherwise); got != want {
			t.Errorf("class %q, want %q", got, want)
		}
	}
	if Classify("x", nil) != nil || Later(nil, 1) != nil || Unavailable(nil) != nil {
		t.Error("an error was made of none")
	}
}

// TestHeldEventsAreDueOneAfterAnother checks that the more events an outage has held back, the later the next one is due, up to
// a bound, and that a result makes them half as many.
func TestHeldEventsAreDueOneAfterAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutages(new(bytes.Buffer))
		first := o.enter("a", 1)
		o.note(t.Context(), "a", first, []error{Unavailable(errRefusedConnection)})
		pause := time.Until(o.down["a"].until)
		spread := func(n int) time.Duration { return o.enter("a", n).wait - pause }
		for want := 30 * heldEach; want < 100*heldEach; want += 30 * heldEach {
			if got := spread(30); got != want {
				t.Errorf("the events are due %v behind the pause, want %v", got, want)
			}
		}
		o.judge("a", entry{open: true}, 0, false, nil)
		if got := spread(5); got != 50*heldEach {
			t.Errorf("after a result they are due %v behind the pause, want %v", got, 50*heldEach)
		}
		if got := spread(1e6); got != heldCap {
			t.Errorf("a million events are due %v behind the pause, want %v", got, heldCap)
		}
	})
}

func TestUnusedOutagesAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutages(new(bytes.Buffer))
		for range manyOutages - 3 {
			scope := rand8()
			o.note(t.Context(), scope, o.enter(scope, 1), []error{Unavailable(errRefusedConnection)})
			o.down[scope].until = time.Now()
		}
		time.Sleep(idleOutage)
		for _, name := range []string{"used", "and", "another"} {
			o.enter(name, 1)
		}
		if len(o.down) != manyOutages || manyOutages != 1000 {
			t.Errorf("%d outages are remembered before there are many", len(o.down))
		}
		if o.enter("used", 1); len(o.down) != manyOutages {
			t.Errorf("%d outages are remembered without a new one", len(o.down))
		}
		delete(o.down, "and")
		delete(o.down, "another")
		delete(o.down, "used")
		o.down["just"] = &outage{until: time.Now().Add(1 - idleOutage)}
		time.Sleep(time.Nanosecond)
		o.down["flies"] = &outage{flying: 1}
		o.down["stuck"] = &outage{stuck: 1}
		o.note(t.Context(), "new", o.enter("new", 1), []error{Unavailable(errRefusedConnection)})
		if len(o.down) != 4 || o.down["just"] == nil || o.down["flies"] == nil || o.down["stuck"] == nil || o.down["new"] == nil {
			t.Errorf("%d outages are remembered", len(o.down))
		}
	})
}

func rand8() string { return message.NewID()[:8] }

// TestJitterOfFailuresCoversTheWholeBackoff draws so many delays that each tenth of [0, 1) occurs.
func TestJitterOfFailuresCoversTheWholeBackoff(t *testing.T) {
	t.Parallel()
	var met [10]int
	for range 1000 {
		s := settlement(leased{id: "e"}, errRefusedConnection, 0)
		if s.What != "failed" || s.Number < 0 || s.Number >= 1 {
			t.Fatalf("%+v, want failed with a jitter in [0, 1)", s)
		}
		met[int(s.Number*10)]++
	}
	for tenth, n := range met {
		if n == 0 {
			t.Errorf("no jitter lies between %d and %d tenths", tenth, tenth+1)
		}
	}
}

func TestProbeWithoutAResultDoesNotEndAnOutage(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{"abandoned": errTimeout, "given back": Later(errRefusedConnection, 0)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := newOutages(new(bytes.Buffer))
				o.notify = func(_ context.Context, of Outage) {
					if of.Over {
						t.Error("the outage is over")
					}
				}
				time.Sleep(o.note(t.Context(), "a", o.enter("a", 1), []error{Unavailable(errRefusedConnection)}))
				o.note(t.Context(), "a", o.enter("a", 1), []error{result})
				if next, beside := o.enter("a", 1), o.enter("a", 1); !next.probe || beside.open {
					t.Errorf("then %+v and %+v are let through, want one probe", next, beside)
				}
			})
		})
	}
}

func TestBatchInFlightProlongsAnOutageOnlyByTheDelayThatItRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutages(new(bytes.Buffer))
		first, second := o.enter("a", 1), o.enter("a", 1)
		o.note(t.Context(), "a", first, []error{Unavailable(errRefusedConnection)})
		pause := o.note(t.Context(), "a", second, []error{Unavailable(message.RetryAfter(errRefusedConnection, time.Minute))})
		if left := time.Until(o.down["a"].until); pause != time.Minute || left != time.Minute || o.down["a"].tries != 1 {
			t.Errorf("a pause of %v, %v left after %d tries, want a minute after one", pause, left, o.down["a"].tries)
		}
	})
}

func TestNothingIsPublishedBesideAProbeForTheDelayThatABatchInFlightRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutages(new(bytes.Buffer))
		first, second := o.enter("", 1), o.enter("", 1)
		time.Sleep(o.note(t.Context(), "", first, []error{Unavailable(errRefusedConnection)}))
		if probe := o.enter("", 1); !probe.probe {
			t.Fatalf("%+v is no probe", probe)
		}
		o.note(t.Context(), "", second, []error{Unavailable(message.RetryAfter(errRefusedConnection, time.Minute))})
		if o.left() != time.Minute {
			t.Errorf("%v left, want a minute", o.left())
		}
	})
}

func TestTooManyStuckCallsOfADestinationStopItAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o := newOutages(&log)
		var told []Outage
		o.notify = func(_ context.Context, of Outage) { told = append(told, of) }
		for i := range maxStuck {
			if in := o.enter("a", 1); !in.open || len(told) > 0 {
				t.Fatalf("it is held up by %d calls: %+v, told of %v", i, in, told)
			}
			o.note(t.Context(), "a", entry{open: true}, []error{errTimeout})
			o.abandon(t.Context(), "a")
		}
		if in, other := o.enter("a", 1), o.enter("b", 1); in.open || !other.open || o.paused() {
			t.Errorf("beyond the bound: %+v, another destination: %+v", in, other)
		}
		o.down["a"].until = time.Now().Add(time.Minute)
		if in := o.enter("a", 1); in.wait < time.Minute {
			t.Errorf("events wait for %v, want a minute at least", in.wait)
		}
		o.down["a"].until = time.Time{}
		o.returned(t.Context(), "a")
		if in := o.enter("a", 1); !in.open || len(told) != 2 || told[0].Over || !told[1].Over || told[1].Destination != "a" {
			t.Errorf("after a call has returned: %+v, told of %+v", in, told)
		}
		if strings.Count(log.String(), "publisher called again") != 1 {
			t.Errorf("the log does not name its end: %s", log.String())
		}
	})
}

func TestTooManyStuckCallsInAllStopEveryDestination(t *testing.T) {
	t.Parallel()
	o := newOutages(new(bytes.Buffer))
	var told []Outage
	o.notify = func(_ context.Context, of Outage) { told = append(told, of) }
	for i := range maxStuckInAll {
		if in := o.enter(strconv.Itoa(i), 1); !in.open || o.paused() || len(told) > 0 {
			t.Fatalf("another destination is held up by %d calls: %+v, told of %v", i, in, told)
		}
		o.abandon(t.Context(), strconv.Itoa(i%8))
	}
	if in := o.enter("another", 1); in.open || in.wait < o.cap || o.left() != o.cap {
		t.Errorf("beyond the bound: %+v, %v left", in, o.left())
	}
	if len(told) != 1 || told[0].Over || !errors.Is(told[0].Err, errStuck) {
		t.Errorf("told of %+v", told)
	}
	o.returned(t.Context(), "0")
	if in := o.enter("another", 1); !in.open || o.paused() {
		t.Errorf("after a call has returned: %+v, %v left", in, o.left())
	}
	if len(told) != 2 || !told[1].Over {
		t.Errorf("told of %+v", told)
	}
}

// TestSettlementFollowsTheErrorOfThePublisher checks it with a pause of a second.
func TestSettlementFollowsTheErrorOfThePublisher(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want shard.Settlement
	}{
		{Unavailable(errRefusedConnection), shard.Settlement{What: settle.GiveBack, Number: 1000}},
		{Later(errRefusedConnection, time.Minute), shard.Settlement{What: settle.GiveBack, Number: 60_000}},
		{Later(ErrUnavailable, time.Minute), shard.Settlement{What: settle.GiveBack, Number: 60_000}},
		{message.Permanent(errRefusedConnection), shard.Settlement{What: settle.Park, Class: "refused"}},
		{message.Permanent(Classify("http_422", errRefusedConnection)), shard.Settlement{What: settle.Park, Class: "http_422"}},
		{errTimeout, shard.Settlement{What: settle.Retry, Class: "timeout"}},
		{context.DeadlineExceeded, shard.Settlement{What: settle.Retry, Class: "timeout"}},
		{errRefusedConnection, shard.Settlement{What: settle.Retry}},
	} {
		got := settlement(leased{id: "e", lease: "l", to: "bank", body: []byte("{}"), given: true}, c.err, time.Second)
		if c.want.What == settle.Retry {
			got.Number = 0 // jitter
		}
		c.want.ID, c.want.Lease, c.want.Destination, c.want.Error = "e", "l", "bank", c.err.Error()
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %+v, want %+v", c.err, got, c.want)
		}
	}
	sent := shard.Settlement{ID: "e", Lease: "l", What: settle.Sent, Destination: "bank", Body: []byte("{}"), Given: true}
	if got := settlement(leased{id: "e", lease: "l", to: "bank", body: []byte("{}"), given: true}, nil, time.Second); !reflect.DeepEqual(got, sent) {
		t.Errorf("sent: %+v, want %+v", got, sent)
	}
}
