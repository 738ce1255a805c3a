package relay

import (
	"bytes"
	"context"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/message"
)

func TestBarrierPausesLongerAfterEachWaitInVainAndLogsAnOutageOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := &barrier{Durability: eval.Durability{Replicas: 1, Timeout: time.Second}, log: slog.New(slog.NewTextHandler(&log, nil)), cap: time.Second}
		lines := func(began, ended int) {
			t.Helper()
			if strings.Count(log.String(), "too few replicas") != began || strings.Count(log.String(), "enough replicas again") != ended {
				t.Errorf("want %d lines about the beginning and %d about the end:\n%s", began, ended, log.String())
			}
		}
		if b.note(true); b.left() != 0 {
			t.Errorf("a pause of %v without an outage", b.left())
		}
		lines(0, 0)
		for tries := 1; tries < 10; tries++ {
			pause, ceiling := b.note(false), min(firstPause<<tries, b.cap)
			if pause < ceiling/2 || pause > ceiling || b.left() != pause {
				t.Errorf("try %d: a pause of %v, %v left, want %v to %v", tries, pause, b.left(), ceiling/2, ceiling)
			}
			lines(1, 0)
		}
		if b.note(true); b.left() != 0 {
			t.Errorf("a pause of %v after the outage", b.left())
		}
		b.note(true)
		lines(1, 1)
		b.note(false)
		b.note(true)
		lines(2, 2)
	})
}

func TestPausesOfTheBarrierVaryUpToACap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tries        int
		cap, ceiling time.Duration
	}{
		{0, time.Hour, 2 * firstPause},
		{99, time.Second, time.Second},
		{99, 100 * time.Hour, firstPause << 20},
		{0, 1, 1},
	} {
		var pauses []time.Duration
		for range 900 {
			b := &barrier{log: slog.New(slog.DiscardHandler), cap: c.cap, tries: c.tries}
			pauses = append(pauses, b.note(false))
		}
		least, most := slices.Min(pauses), slices.Max(pauses)
		if least < c.ceiling/2 || least > c.ceiling*51/100 || most > c.ceiling || most < c.ceiling*99/100-1 {
			t.Errorf("try %d: pauses of %v to %v, want %v to %v", c.tries+1, least, most, c.ceiling/2, c.ceiling)
		}
	}
}

// TestNothingIsClaimedOrPublishedInlineDuringAnOutage has no server, so that a claim would fail the test.
func TestNothingIsClaimedOrPublishedInlineDuringAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ outage, barrier, want time.Duration }{
			{2 * time.Second, 0, 2 * time.Second},
			{0, 3 * time.Second, 3 * time.Second},
			{2 * time.Second, 3 * time.Second, 3 * time.Second},
			{3 * time.Second, 2 * time.Second, 3 * time.Second},
			{},
		} {
			r := &Relay{cfg: Config{InlineSlots: 1}}
			r.outage.cap, r.outage.most = time.Second, 1
			now := time.Now()
			if c.outage > 0 {
				r.outage.down = map[string]*outage{"": {tries: 1, until: now.Add(c.outage)}}
			}
			if c.barrier > 0 {
				r.barrier.until = now.Add(c.barrier)
			}
			if _, ok := (inlineRelay{r}).Reserve(); ok {
				t.Errorf("%+v: a relay that does not run lends a slot", c)
			}
			r.open.Store(true)
			if _, ok := (inlineRelay{r}).Reserve(); ok != (c.want == 0) {
				t.Errorf("%+v: it lends a slot: %t", c, ok)
			}
			if c.want == 0 {
				continue
			}
			if claim, again := r.claimSlot(t.Context(), 0); !again.Equal(now.Add(c.want)) || len(claim.Events) > 0 {
				t.Errorf("%+v: the slot is visited again after %v", c, again.Sub(now))
			}
		}
	})
}

func TestHandoversAreGatheredUpToABatch(t *testing.T) {
	t.Parallel()
	r := &Relay{cfg: Config{BatchSize: 3}, inline: make(chan handover, 9)}
	for _, n := range []int{1, 1, 1, 2, 1} {
		r.inline <- handover{events: make([]shard.Event, n)}
	}
	for _, want := range []int{3, 2} {
		if got := r.gather(<-r.inline); len(got) != want {
			t.Errorf("%d handovers are gathered, want %d", len(got), want)
		}
	}
}

// TestEventsOfAPausedDestinationAreHeldForAWhileThatVaries checks also that the others stay.
func TestEventsOfAPausedDestinationAreHeldForAWhileThatVaries(t *testing.T) {
	t.Parallel()
	r := &Relay{publisher: PublisherFunc(nil)}
	if r.pauses.some() {
		t.Error("a destination is paused before any pause is known")
	}
	known := map[string]bool{"bank": true}
	r.pauses.known.Store(&known)
	var events []leased
	var messages []*message.RawMessage
	for i := range 1000 {
		events = append(events, leased{slot: 7, id: "held"})
		messages = append(messages, message.NewRaw(nil, message.Attributes{message.AttrDestination: "bank"}, nil))
		if i%500 == 0 {
			events = append(events, leased{slot: 8, id: "free"})
			messages = append(messages, message.NewRaw(nil, message.Attributes{message.AttrDestination: "shop"}, nil))
		}
	}
	fates := make(settlements)
	left, others, held := r.withoutPaused(events, messages, fates)
	if len(left) != 2 || left[0].id != "free" || left[1].id != "free" || len(others) != 2 || others[1].Destination() != "shop" || !slices.Equal(held, []int{7}) {
		t.Errorf("left %+v and %d messages, held in %v", left, len(others), held)
	}
	most, least := time.Duration(0), time.Hour
	for _, s := range fates[7] {
		wait := time.Duration(s.Number) * time.Millisecond
		if most, least = max(most, wait), min(least, wait); s.What != settle.Hold {
			t.Fatalf("%+v", s)
		}
	}
	if half := shard.HeldFor / 2; len(fates[7]) != 1000 || least < half || least > half*11/10 || most < half*19/10 || most >= shard.HeldFor {
		t.Errorf("%d events are held for %v to %v", len(fates[7]), least, most)
	}
}

// TestHeldEventsAreOwedOnceAPauseHasEnded checks which reads of the pauses mean that held events must be made due.
func TestHeldEventsAreOwedOnceAPauseHasEnded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	bank, shop := shard.Pause{Destination: "bank"}, shard.Pause{Destination: "shop"}
	ended := func(ago time.Duration) shard.Pause { return shard.Pause{Destination: "bank", Until: now.Add(-ago)} }
	for name, c := range map[string]struct {
		reads [][]shard.Pause
		owed  bool
	}{
		"nothing is paused":                    {[][]shard.Pause{nil, nil}, false},
		"a pause lasts":                        {[][]shard.Pause{{bank}, {bank}}, false},
		"a pause begins":                       {[][]shard.Pause{nil, {bank}}, false},
		"a pause is over":                      {[][]shard.Pause{{bank}, nil}, true},
		"one of two is over":                   {[][]shard.Pause{{bank, shop}, {shop}}, true},
		"one is over and another begins":       {[][]shard.Pause{{bank}, {shop}}, true},
		"one had ended recently at first":      {[][]shard.Pause{{ended(shard.HeldFor - 1)}}, true},
		"one had ended long ago at first":      {[][]shard.Pause{{ended(shard.HeldFor)}}, false},
		"one has ended that nobody knew of":    {[][]shard.Pause{nil, {ended(time.Second)}}, false},
		"another read does not forget the end": {[][]shard.Pause{{bank}, nil, nil}, true},
	} {
		var p pauses
		for _, read := range c.reads {
			p.update(read, now)
		}
		if p.owed != c.owed {
			t.Errorf("%s: owed is %t", name, p.owed)
		}
	}
}

func TestCountsHoldEachFate(t *testing.T) {
	t.Parallel()
	var c counts
	c.note([]string{
		settle.Sent, settle.Retry, settle.Retry, settle.GiveBack, settle.GiveBack, settle.GiveBack,
		settle.Park, settle.Park, settle.Park, settle.Park, "stale", "stale", "stale", "stale", "stale",
	})
	if want := map[string]int64{"sent": 1, "failed": 2, "returned": 3, "parked": 4, "lost": 5}; !reflect.DeepEqual(c.all(), want) {
		t.Errorf("%v, want %v", c.all(), want)
	}
}

func TestObserverIsNotifiedBeforeTheOneThatAndAdds(t *testing.T) {
	t.Parallel()
	var told []string
	named := func(name string) Observer {
		return Observer{
			Published: func(context.Context, Published) { told = append(told, "published "+name) },
			Settled:   func(context.Context, Settled) { told = append(told, "settled "+name) },
			Outage:    func(context.Context, Outage) { told = append(told, "outage "+name) },
			Stuck:     func(context.Context, Stuck) { told = append(told, "stuck "+name) },
		}
	}
	both := named("first").And(named("second"))
	both.Published(t.Context(), Published{})
	both.Settled(t.Context(), Settled{})
	both.Outage(t.Context(), Outage{})
	both.Stuck(t.Context(), Stuck{})
	if want := []string{
		"published first", "published second", "settled first", "settled second", "outage first", "outage second", "stuck first", "stuck second",
	}; !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
}

// TestInnerCallIsAbandonedBeforeTheOneAroundIt checks that a hanging call inside a Func is abandoned after three quarters of the
// grace, and that its observer gets a context that has not ended.
func TestInnerCallIsAbandonedBeforeTheOneAroundIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var told []Stuck
		w := watch{outages: newOutages(&log), log: slog.New(slog.NewTextHandler(&log, nil)), scope: "bank", began: time.Now()}
		w.notify = func(ctx context.Context, s Stuck) {
			if told = append(told, s); ctx.Err() != nil {
				t.Errorf("%+v: %v", s, ctx.Err())
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := Func(func(context.Context, *message.RawMessage) error { time.Sleep(time.Minute); return nil }, FuncConfig{})
		errs := ask(w.supervision(ctx, 400*time.Millisecond).attach(ctx), p, []*message.RawMessage{message.NewRaw(nil, nil, nil)})
		if took := time.Since(w.began); took != 1300*time.Millisecond || len(errs) != 1 || classOf(errs[0], "") != "timeout" {
			t.Errorf("%v after %v, want a timeout after 1.3s", errs, took)
		}
		time.Sleep(time.Hour)
		synctest.Wait() // the race detector then knows that the observer has returned
		if len(told) != 2 || told[0].Returned || !told[1].Returned || strings.Count(log.String(), "destination=bank") != 2 {
			t.Errorf("told of %+v, logged %s", told, log.String())
		}
	})
}
