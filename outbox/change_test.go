package outbox_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/repair"
)

// schedule commits an event with a time.
func (y yard) schedule(id string, at time.Time) {
	y.t.Helper()
	_, err := y.tr.Transact(redistest.Soon(y.t), "a", func(tx *luatx.Tx) error {
		return tx.Emit(luatx.Event{ID: id, At: at, Body: fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/s","type":"t","destination":"d"}`, id)})
	})
	redistest.Must(y.t, err)
}

// everyState puts an event into each state, and returns the time of the scheduled one.
func (y yard) everyState() time.Time {
	y.t.Helper()
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	y.emit("t", "d", "", "leased", "sent")
	y.claim(time.Hour)
	y.settle("sent", "", "", "", "sent")
	y.emit("t", "d", "k", "head", "second", "third")
	y.emit("t", "d", "", "due", "failed", "parked")
	y.settle("failed", "", "slow", "too slow", "failed")
	y.park("odd", "parked")
	y.schedule("later", at)
	return at
}

func TestListNarrowsPendingEventsAndTakesAFilter(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.everyState()
		for _, c := range []struct {
			state  outbox.State
			filter outbox.Filter
			want   []string
		}{
			{outbox.Scheduled, outbox.Filter{}, []string{"later"}},
			{outbox.Retrying, outbox.Filter{}, []string{"failed"}},
			{outbox.Pending, outbox.Filter{}, []string{"due", "failed", "head", "later"}},
			{outbox.Pending, outbox.Filter{Class: "slow"}, []string{"failed"}},
			{outbox.Pending, outbox.Filter{IDs: []string{"due", "second", "parked", "nobody"}}, []string{"due"}},
			{outbox.Scheduled, outbox.Filter{IDs: []string{"due", "later"}}, []string{"later"}},
			{outbox.Waiting, outbox.Filter{Key: "k"}, []string{"second", "third"}},
			{outbox.Waiting, outbox.Filter{Key: "other"}, nil},
			{outbox.Leased, outbox.Filter{Type: "t", Destination: "d"}, []string{"leased"}},
			{outbox.Sent, outbox.Filter{Aggregate: "a"}, []string{"sent"}},
			{outbox.Parked, outbox.Filter{Text: "no: odd", Slots: []int{y.slot}}, []string{"parked"}},
		} {
			got := listed(t, y.store.List(redistest.Soon(t), c.state, outbox.ListOptions{Filter: c.filter, NoBodies: true}))
			if slices.Sort(got); len(got)+len(c.want) > 0 && !slices.Equal(got, c.want) {
				t.Errorf("%s %v: %v, want %v", c.state, c.filter, got, c.want)
			}
		}
	})
}

func TestListContinuesAfterAnEventOfAnyState(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "", "", "l1", "l2", "l3")
		y.claim(time.Hour)
		y.emit("t", "", "", "p1", "p2", "p3")
		y.emit("t", "", "k%", "w0", "w1", "w2", "w3")
		for _, state := range []outbox.State{outbox.Leased, outbox.Pending, outbox.Waiting} {
			all := listed(t, y.store.List(redistest.Soon(t), state, outbox.ListOptions{}))
			if len(all) < 3 {
				t.Errorf("%s: %v", state, all)
			}
			i := 0
			for e, err := range y.store.List(redistest.Soon(t), state, outbox.ListOptions{}) {
				redistest.Must(t, err)
				var f outbox.Filter
				slot, place, ok := link.PlaceOf(&e)
				link.ContinueAt(&f, slot, place)
				if got := listed(t, y.store.List(redistest.Soon(t), state, outbox.ListOptions{Filter: f})); !ok || !slices.Equal(got, all[i+1:]) {
					t.Errorf("%s behind %s: %v, want %v", state, e.ID, got, all[i+1:])
				}
				i++
			}
		}
	})
}

// TestContinuedListHasEarlierEventsOfLaterShards continues behind an event that is due after those of the next shard.
func TestContinuedListHasEarlierEventsOfLaterShards(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := newTransactor(t, client)
		aggregates := map[int]string{}
		for i := 0; len(aggregates) < 2; i++ {
			aggregates[slotOf(t, tr, fmt.Sprint("a", i))] = fmt.Sprint("a", i)
		}
		slots := slices.Sorted(maps.Keys(aggregates))
		for i, id := range []string{"late", "early"} {
			_, err := tr.Transact(redistest.Soon(t), aggregates[slots[i]], func(tx *luatx.Tx) error {
				return tx.Emit(luatx.Event{ID: id, Data: 1, At: time.Now().Add(time.Duration(2-i) * time.Hour)})
			})
			redistest.Must(t, err)
		}
		store := outbox.NewStore(tr)
		for e, err := range store.List(redistest.Soon(t), outbox.Scheduled, outbox.ListOptions{}) {
			redistest.Must(t, err)
			var f outbox.Filter
			slot, place, _ := link.PlaceOf(&e)
			link.ContinueAt(&f, slot, place)
			if got := listed(t, store.List(redistest.Soon(t), outbox.Scheduled, outbox.ListOptions{Filter: f})); slot == slots[0] && !slices.Equal(got, []string{"early"}) {
				t.Errorf("behind %s: %v", e.ID, got)
			}
		}
	})
}

func TestChangeAppliesEachActOnlyInItsStates(t *testing.T) {
	t.Parallel()
	ids := []string{"due", "failed", "later", "head", "second", "leased", "parked", "sent", "nobody"}
	const done, wrong, busy, unknown = outbox.Done, outbox.WrongState, outbox.InUse, outbox.Unknown
	for act, want := range map[outbox.Act][]outbox.Outcome{
		outbox.ActRetry:      {done, done, done, done, wrong, busy, wrong, wrong, unknown},
		outbox.ActReschedule: {done, done, done, done, wrong, busy, wrong, wrong, unknown},
		outbox.ActCancel:     {wrong, wrong, done, wrong, wrong, busy, wrong, wrong, unknown},
		outbox.ActPark:       {done, done, done, done, done, busy, wrong, wrong, unknown},
		outbox.ActDiscard:    {done, done, done, done, done, busy, done, wrong, unknown},
	} {
		t.Run(string(act), func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
				y := newYard(t, client)
				y.everyState()
				redistest.Must(t, client.HSet(redistest.Soon(t), keys{t, client, y.tr}.key("routes"), "due", "elsewhere", "parked", "elsewhere").Err())
				c := outbox.Change{Act: act, Reason: "why"}
				if act == outbox.ActReschedule {
					c.At = time.Now().Add(24 * time.Hour).Truncate(time.Millisecond)
				}
				answers, err := y.store.Change(redistest.Soon(t), y.slot, c, ids...)
				redistest.Must(t, err)
				changed := 0
				for i, a := range answers {
					if a.ID != ids[i] || a.Outcome != want[i] {
						t.Errorf("%+v, want %s", a, want[i])
					}
					if a.Outcome != done {
						continue
					}
					changed++
					y.changed(c, a.ID)
				}
				y.overview()
				discarded := map[outbox.Act]int{outbox.ActCancel: changed, outbox.ActDiscard: changed}[act]
				if got := y.counts().Totals.Discarded; got != int64(discarded) {
					t.Errorf("%d are counted as discarded, want %d", got, discarded)
				}
				records := y.audit()
				if n := len(records); n != 1 || records[0].Act != string(act) || records[0].Done != changed || !strings.HasPrefix(records[0].Why, "why") {
					t.Errorf("%+v", records)
				}
				y.sound()
			})
		})
	}
}

// changed checks the effect of an act on an event.
func (y yard) changed(c outbox.Change, id string) {
	y.t.Helper()
	switch c.Act {
	case outbox.ActRetry:
		if e := y.want(id, outbox.Pending); e.At.After(time.Now().Add(time.Minute)) {
			y.t.Errorf("%s is due at %v", id, e.At)
		}
	case outbox.ActReschedule:
		if e := y.want(id, outbox.Pending); !e.At.Equal(c.At) {
			y.t.Errorf("%s is due at %v, want %v", id, e.At, c.At)
		}
	case outbox.ActPark:
		if e := y.want(id, outbox.Parked); e.Class != "operator" || e.Error != c.Reason {
			y.t.Errorf("%+v", e)
		}
	default:
		if _, err := y.store.Show(redistest.Soon(y.t), y.slot, id); err == nil {
			y.t.Errorf("%s is still there", id)
		}
	}
}

// sound checks that no index of the shard disagrees with another.
func (y yard) sound() {
	y.t.Helper()
	c := y.counts()
	n, err := y.client.HLen(redistest.Soon(y.t), link.Of(y.tr).Scripts.Shard(y.slot).Key("entries")).Result()
	redistest.Must(y.t, err)
	if got := c.Pending + c.Waiting + c.Parked + c.Sent; got != n {
		y.t.Errorf("%+v of %d events", c, n)
	}
	states := map[outbox.State]int64{outbox.Pending: c.Pending - c.Leased, outbox.Waiting: c.Waiting, outbox.Parked: c.Parked}
	for state, want := range states {
		if got := len(listed(y.t, y.store.List(redistest.Soon(y.t), state, outbox.ListOptions{}))); int64(got) != want {
			y.t.Errorf("%d are %s, counted were %d", got, state, want)
		}
	}
	worker, err := repair.New(y.tr, repair.Config{})
	redistest.Must(y.t, err)
	for f, err := range worker.Check(redistest.Soon(y.t)) {
		y.t.Errorf("%v, %v", f, err)
	}
}

func TestLaneContinuesBehindADiscardedHeadAndWaitsBehindAParkedOne(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "d", "k", "1", "2", "3", "4")
		change := func(act outbox.Act, id string) {
			t.Helper()
			answers, err := y.store.Change(redistest.Soon(t), y.slot, outbox.Change{Act: act, Reason: "why"}, id)
			if err != nil || answers.Done() != 1 {
				t.Errorf("%s %s: %v, %v", act, id, answers, err)
			}
		}
		change(outbox.ActPark, "3")
		change(outbox.ActDiscard, "1")
		y.want("2", outbox.Pending)
		change(outbox.ActDiscard, "2")
		y.want("4", outbox.Waiting)
		y.same(y.blockedOf(outbox.Filter{}), "3:1")
		y.sound()
		_, err := y.store.Rearm(redistest.Soon(t), y.slot, "3")
		redistest.Must(t, err)
		y.want("3", outbox.Pending)
		change(outbox.ActDiscard, "3")
		y.want("4", outbox.Pending)
		y.sound()
	})
}

func TestChangeCountsTheAttemptOfALeaseThatHasEnded(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	y := newYard(t, client)
	start := time.Now().Truncate(time.Second)
	server.SetTime(start)
	y.emit("t", "d", "", "1", "2")
	y.claim(time.Second)
	server.SetTime(start.Add(time.Minute))
	for id, act := range map[string]outbox.Act{"1": outbox.ActRetry, "2": outbox.ActPark} {
		_, err := y.store.Change(redistest.Soon(t), y.slot, outbox.Change{Act: act, Reason: "why"}, id)
		redistest.Must(t, err)
	}
	if e := y.want("1", outbox.Pending); e.Attempts != 1 || !e.At.Equal(start.Add(time.Minute)) {
		t.Errorf("%+v", e)
	}
	if e := y.want("2", outbox.Parked); e.Attempts != 1 || len(e.History) != 1 || e.History[0].Attempt != 1 {
		t.Errorf("%+v", e)
	}
}

func TestEventThatIsDueAtTheFirstMillisecondIsNotLeased(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "d", "", "1")
		for _, c := range []outbox.Change{{Act: outbox.ActReschedule, At: time.UnixMilli(0)}, {Act: outbox.ActPark}} {
			if c.Act == outbox.ActPark {
				if e := y.want("1", outbox.Pending); !e.At.Equal(time.UnixMilli(0)) || e.Lease != "" || e.Attempts != 0 {
					t.Errorf("%+v", e)
				}
			}
			c.Reason = "why"
			answers, err := y.store.Change(redistest.Soon(t), y.slot, c, "1")
			wantAnswers(t, answers, err, outbox.Done)
		}
		if e := y.want("1", outbox.Parked); e.Attempts != 0 {
			t.Errorf("%+v", e)
		}
	})
}

func TestLeaseHasEndedAtTheMillisecondOfItsEnd(t *testing.T) {
	t.Parallel()
	const leased = 10_000_000_000_000 // see internal/lua/_lease.lua
	server, client := redistest.Mini(t)
	y, now := newYard(t, client), time.Now().Truncate(time.Millisecond)
	server.SetTime(now)
	y.emit("t", "d", "", "1")
	y.claim(time.Hour)
	for _, c := range []struct {
		left   time.Duration
		state  outbox.State
		answer outbox.Outcome
	}{{time.Millisecond, outbox.Leased, outbox.InUse}, {0, outbox.Pending, outbox.Done}} {
		ends := float64(now.Add(c.left).UnixMilli() - leased)
		redistest.Must(t, client.ZAdd(redistest.Soon(t), keys{t, client, y.tr}.key("pending"), redis.Z{Score: ends, Member: "1"}).Err())
		y.want("1", c.state)
		answers, err := y.store.Change(redistest.Soon(t), y.slot, outbox.Change{Act: outbox.ActRetry, Reason: "why"}, "1")
		wantAnswers(t, answers, err, c.answer)
	}
}

func TestChangeAllChangesTheFilteredEventsOfAStateUpToALimit(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		ids := numbered(1200)
		y.emit("t", "d", "", ids...)
		for chunk := range slices.Chunk(ids, 600) {
			y.settle("failed", "", "slow", "too slow", chunk...)
		}
		y.emit("t", "other", "", "fresh")
		c := outbox.Change{Act: outbox.ActRetry, Reason: "why"}
		all := func(state outbox.State, f outbox.Filter, opts outbox.ChangeOptions) outbox.ChangeResult {
			t.Helper()
			result, err := y.store.ChangeAll(redistest.Soon(t), state, f, c, opts)
			redistest.Must(t, err)
			return result
		}
		steps := 0
		if r := all(outbox.Retrying, outbox.Filter{Class: "slow"}, outbox.ChangeOptions{DryRun: true}); r.Matched != 1200 || r.Done != 0 || r.Destinations["d"] != 1200 {
			t.Errorf("%+v", r)
		}
		if r := all(outbox.Retrying, outbox.Filter{}, outbox.ChangeOptions{Limit: 700, Progress: func(outbox.ChangeResult) { steps++ }}); r.Matched != 700 || r.Done != 700 || steps != 2 {
			t.Errorf("%+v in %d steps", r, steps)
		}
		due, err := y.store.FindPending(redistest.Soon(t), 10_000)
		if err != nil || len(due) != 701 {
			t.Errorf("%d are due, %v", len(due), err)
		}
		c.Act = outbox.ActDiscard
		if r := all(outbox.Pending, outbox.Filter{Destination: "other"}, outbox.ChangeOptions{}); r.Matched != 1 || r.Done != 1 {
			t.Errorf("%+v", r)
		}
		c.Act = outbox.ActCancel
		if r := all(outbox.Pending, outbox.Filter{}, outbox.ChangeOptions{Limit: 5}); r.Done != 0 || r.Skipped[outbox.WrongState] != 5 {
			t.Errorf("%+v", r)
		}
		for _, r := range y.audit() {
			if r.Act == "retry" && r.Why != "why: retrying all" {
				t.Errorf("%+v", r)
			}
			if len(r.IDs) != min(100, r.Done) {
				t.Errorf("%d ids of %d changed events are recorded", len(r.IDs), r.Done)
			}
		}
	})
}

func TestChangeRejectsInvalidRequests(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	y := newYard(t, client)
	ctx := redistest.Soon(t)
	for want, c := range map[string]outbox.Change{
		"reason is empty": {Act: outbox.ActPark},
		`"erase"`:         {Act: "erase", Reason: "why"},
		"set At for":      {Act: outbox.ActReschedule, Reason: "why"},
		"At is 2":         {Act: outbox.ActRetry, Reason: "why", At: time.Now()},
		"years 1970":      {Act: outbox.ActReschedule, Reason: "why", At: time.UnixMilli(-1)},
	} {
		_, err := y.store.Change(ctx, y.slot, c, "1")
		_, all := y.store.ChangeAll(ctx, outbox.Pending, outbox.Filter{}, c, outbox.ChangeOptions{})
		for _, err := range []error{err, all} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
	c := outbox.Change{Act: outbox.ActPark, Reason: "why"}
	if _, err := y.store.ChangeAll(ctx, outbox.Pending, outbox.Filter{}, c, outbox.ChangeOptions{Limit: -1}); err == nil {
		t.Error("a negative limit is taken")
	}
	if _, err := y.store.ChangeAll(ctx, "lost", outbox.Filter{}, c, outbox.ChangeOptions{}); err == nil || !strings.Contains(err.Error(), `"lost"`) {
		t.Error(err)
	}
	if _, err := outbox.NewStore(y.tr).Change(ctx, y.slot, c, "1"); err == nil || !strings.Contains(err.Error(), "store.As") {
		t.Error(err)
	}
}

func TestChangeAllReschedulesEachEventOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t, redistest.Shared(t).Client(t))
	ids := numbered(600)
	y.emit("t", "d", "", ids...)
	y.settle("failed", "", "slow", "too slow", ids...)
	c := outbox.Change{Act: outbox.ActReschedule, Reason: "why", At: time.Now().Add(24 * time.Hour)} // behind those that are not listed yet
	r, err := y.store.ChangeAll(redistest.Soon(t), outbox.Retrying, outbox.Filter{}, c, outbox.ChangeOptions{})
	if err != nil || r.Matched != len(ids) || r.Done != len(ids) || r.Destinations["d"] != len(ids) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestChangeAllChangesEveryShardAndEventsThatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := newTransactor(t, client)
		y := yard{t, tr, client, outbox.NewStore(tr).As("alice"), slotOf(t, tr, "a0")}
		for i := range 12 {
			redistest.Must(t, emit(tr, fmt.Sprint("a", i), fmt.Sprint("e", i)))
		}
		y.enqueue(shard.Event{ID: "0", Body: []byte("no message")})
		r, err := y.store.ChangeAll(redistest.Soon(t), outbox.Pending, outbox.Filter{}, outbox.Change{Act: outbox.ActDiscard, Reason: "why"}, outbox.ChangeOptions{})
		if err != nil || r.Matched != 13 || r.Done != 13 {
			t.Errorf("%+v, %v", r, err)
		}
		wantCounts(t, y.store, outbox.Counts{})
	})
}

func TestLongFilterIsCutInTheAudit(t *testing.T) {
	t.Parallel()
	y, ctx := newYard(t, redistest.Shared(t).Client(t)), redistest.Soon(t)
	f := outbox.Filter{Text: "x" + strings.Repeat("ü", 509)}
	y.emit("t", "", "", "1")
	y.settle("parked", "", "odd", f.Text, "1")
	armed, err := y.store.RearmAll(ctx, f, outbox.RearmOptions{})
	redistest.Must(t, err)
	changed, err := y.store.ChangeAll(ctx, outbox.Pending, f, outbox.Change{Act: outbox.ActDiscard, Reason: "why"}, outbox.ChangeOptions{})
	redistest.Must(t, err)
	_, err = y.store.Replay(ctx, time.Time{}, f, outbox.ReplayOptions{})
	redistest.Must(t, err)
	records := y.audit()
	if armed.Rearmed != 1 || changed.Done != 1 || len(records) != 2 {
		t.Fatalf("%+v, %+v, recorded %v", armed, changed, records)
	}
	for _, r := range records {
		if n := len(r.Why); n < 1023 || n > 1024 || !utf8.ValidString(r.Why) || !strings.Contains(r.Why, `text="xüüü`) {
			t.Errorf("%d bytes: %s", len(r.Why), r.Why)
		}
	}
}

func TestScheduledEventThatWasParkedIsNoLongerScheduled(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y, ctx := newYard(t, client), redistest.Soon(t)
		y.schedule("1", time.Now().Add(time.Hour))
		answers, err := y.store.Change(ctx, y.slot, outbox.Change{Act: outbox.ActPark, Reason: "why"}, "1")
		wantAnswers(t, answers, err, outbox.Done)
		if e := y.want("1", outbox.Parked); e.Scheduled {
			t.Errorf("%+v", e)
		}
		for _, store := range []*outbox.Store{y.store, outbox.NewStore(y.tr)} {
			if done, err := store.Cancel(ctx, "a", "1"); done || err != nil {
				t.Errorf("cancelled %t, %v", done, err)
			}
			if done, err := store.Move(ctx, "a", "1", time.Now()); done || err != nil {
				t.Errorf("moved %t, %v", done, err)
			}
		}
		y.want("1", outbox.Parked)
		answers, err = y.store.Rearm(ctx, y.slot, "1")
		wantAnswers(t, answers, err, outbox.Done)
		if e := y.want("1", outbox.Pending); e.Scheduled || e.At.After(time.Now().Add(time.Minute)) {
			t.Errorf("%+v", e)
		}
	})
}
