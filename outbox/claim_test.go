package outbox_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

type wordy struct{ error }

func (wordy) Class() string { return "out of\nstock" }

// keys reads the keys of the only partition.
type keys struct {
	t      testing.TB
	client redis.UniversalClient
	tr     *luatx.Transactor
}

func (s keys) key(name string) string {
	return link.Of(s.tr).Scripts.Shard(s.tr.Keyspace().Slots()[0]).Key(name)
}

func (s keys) hash(name string) map[string]string {
	s.t.Helper()
	values, err := s.client.HGetAll(redistest.Soon(s.t), s.key(name)).Result()
	redistest.Must(s.t, err)
	return values
}

func (s keys) members(name string) []string {
	s.t.Helper()
	ids, err := s.client.ZRange(redistest.Soon(s.t), s.key(name), 0, -1).Result()
	redistest.Must(s.t, err)
	return ids
}

func wantDone(t testing.TB, got []int, err error, want ...int) {
	t.Helper()
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

func TestClaimAndSettleRejectInvalidCallsBeforeSending(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr, ctx := newTransactor(t, client, onePartition), redistest.Soon(t)
	store, slot := outbox.NewStore(tr), tr.Keyspace().Slots()[0]
	for _, bad := range []int{-1, 16384} {
		_, errClaim := store.Claim(ctx, bad, outbox.Work{})
		_, errSent := store.Sent(ctx, bad, outbox.Work{}, "1")
		for _, err := range []error{errClaim, errSent} {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprint("the slot is ", bad)) {
				t.Errorf("slot %d: %v", bad, err)
			}
		}
	}
	for field, bad := range map[string][]outbox.Work{
		"Limit":       {{Limit: -1}, {Limit: 1001}},
		"Lease":       {{Lease: -1}, {Lease: time.Millisecond}, {Lease: 24*time.Hour + 1}, {Lease: math.MaxInt64}},
		"Attempts":    {{Attempts: -1}},
		"BackoffBase": {{BackoffBase: -1}},
		"BackoffCap":  {{BackoffCap: -1}, {BackoffBase: time.Second, BackoffCap: time.Millisecond}, {BackoffBase: time.Hour}},
	} {
		for _, work := range bad {
			_, errClaim := store.Claim(ctx, slot, work)
			_, errSent := store.Sent(ctx, slot, work, "1")
			_, errFailed := store.Failed(ctx, outbox.Batch{Slot: slot}, work, outbox.Fault{ID: "1", Err: errors.New("no")})
			for _, err := range []error{errClaim, errSent, errFailed} {
				if err == nil || !strings.Contains(err.Error(), "Work."+field+" is ") || !strings.Contains(err.Error(), "; use ") {
					t.Errorf("%+v: %v", work, err)
				}
			}
		}
	}
	ids := make([]string, 1001)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	if _, err := store.Sent(ctx, slot, outbox.Work{}, ids...); err == nil || !strings.Contains(err.Error(), "at most 1000") {
		t.Errorf("1001 events: %v", err)
	}
	if done, err := store.Sent(ctx, slot, outbox.Work{}, ids[:1000]...); err != nil || len(done) != 1000 || slices.Contains(done, 1) {
		t.Errorf("1000 unknown events: %v, %v", done, err)
	}
	if _, err := store.Failed(ctx, outbox.Batch{Slot: slot}, outbox.Work{}, outbox.Fault{ID: "1"}); err == nil || !strings.Contains(err.Error(), "without an error") {
		t.Errorf("a failure without an error: %v", err)
	}
}

// TestSettleChangesOnlyEventsOfItsLease checks the results: 1 for an event that changed. An event in a final state, or under
// another lease, stays unchanged.
func TestSettleChangesOnlyEventsOfItsLease(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, ctx := newTransactor(t, client, onePartition), redistest.Soon(t)
		s, store, slot := keys{t, client, tr}, outbox.NewStore(tr), tr.Keyspace().Slots()[0]
		work := outbox.Work{Lease: time.Hour, BackoffBase: time.Millisecond, Attempts: 2}
		redistest.Must(t, emit(tr, "a", "1", "2", "3", "4"))
		taken, err := store.Claim(ctx, slot, work)
		redistest.Must(t, err)
		if ids, tried := idsOf(taken), s.hash("attempts"); len(ids) != 4 || len(tried) > 0 { // a first lease has none
			t.Fatal(ids, tried)
		}
		done, err := store.Sent(ctx, slot, work, "1", "1", "unknown")
		wantDone(t, done, err, 1, 0, 0)
		sent, _ := client.ZScore(ctx, s.key("sent"), "1").Result()
		done, err = store.Sent(ctx, slot, work, "1")
		wantDone(t, done, err, 0)
		if again, _ := client.ZScore(ctx, s.key("sent"), "1").Result(); again != sent || sent == 0 {
			t.Errorf("sent at %v, then %v", sent, again)
		}
		done, err = store.Failed(ctx, taken, work, outbox.Fault{ID: "1", Err: errors.New("late")}, outbox.Fault{ID: "2", Err: errors.New("no")},
			outbox.Fault{ID: "3", Err: message.Permanent(wordy{errors.New("two\r\nlines")})})
		wantDone(t, done, err, 0, 1, 1)
		done, err = store.Failed(ctx, taken, work, outbox.Fault{ID: "2", Err: errors.New("again")}, outbox.Fault{ID: "3", Err: errors.New("again")})
		wantDone(t, done, err, 0, 0)
		later := relay.Later(errors.New("not tried"), 0)
		done, err = store.Failed(ctx, taken, work, outbox.Fault{ID: "4", Err: later}, outbox.Fault{ID: "2", Err: later}, outbox.Fault{ID: "1", Err: later})
		wantDone(t, done, err, 1, 0, 0)
		done, err = store.Failed(ctx, outbox.Batch{Slot: slot}, work, outbox.Fault{ID: "4", Err: later})
		wantDone(t, done, err, 0)
		if _, err := store.Failed(ctx, taken, work, outbox.Fault{ID: "4"}); err == nil {
			t.Error("a failure without an error")
		}
		for p, err := range store.Parked(ctx, outbox.Filter{}) {
			if redistest.Must(t, err); p.ID != "3" || p.Class != "out_of_stock" || p.Error != "two  lines" || p.Attempts != 1 {
				t.Errorf("%+v", p)
			}
		}
		done, err = store.Sent(ctx, slot, work, "3") // sent always wins
		wantDone(t, done, err, 1)
		if left := s.hash("parked:by"); len(left) != 0 {
			t.Errorf("parked by %v", left)
		}
		wantCounts(t, store, outbox.Counts{Pending: 2, Sent: 2})
		if got, want := s.hash("counts"), "map[bytes:1125899906842754 failed:2 left:2 parked_bytes:0 parkings:1 sent:2]"; fmt.Sprint(got) != want {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

func TestExtendChangesOnlyCurrentLeases(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, ctx := newTransactor(t, client, onePartition), redistest.Soon(t)
		k, scripts := keys{t, client, tr}, link.Of(tr).Scripts
		home := scripts.Shard(tr.Keyspace().Slots()[0])
		redistest.Must(t, emit(tr, "a", "own", "held", "sent", "lost", "oldest"))
		claim, err := scripts.Claim(ctx, home, shard.Claiming{Limit: 5, Lease: time.Minute, Attempts: 10})
		redistest.Must(t, err)
		lease := claim.Lease
		_, err = scripts.Settle(ctx, home, shard.Settling{Attempts: 10, Retention: time.Hour}, []shard.Settlement{{ID: "sent", What: "sent"}})
		redistest.Must(t, err, client.ZAdd(ctx, k.key("pending"), redis.Z{Score: float64(time.Now().UnixMilli()), Member: "own"},
			redis.Z{Score: -1, Member: "lost"}, redis.Z{Score: 0, Member: "oldest"}).Err())
		before := scores(t, k, "own", "held", "lost")
		extended, err := scripts.Extend(ctx, home, time.Hour, []shard.Held{
			{ID: "own"}, {ID: "held", Lease: lease}, {ID: "sent", Lease: lease}, {ID: "lost", Lease: lease}, {ID: "oldest"},
		}, eval.Durability{})
		if err != nil || !slices.Equal(extended.Held, []bool{true, true, false, false, true}) {
			t.Errorf("held: %v, %v", extended.Held, err)
		}
		after := scores(t, k, "own", "held", "lost")
		for i, moved := range []bool{true, true, false} {
			if (after[i] > before[i]+30*60*1000) != moved || !moved && after[i] != before[i] {
				t.Errorf("event %d has the score %.0f, before %.0f; moved: %t", i, after[i], before[i], moved)
			}
		}
		if !isLease(extended.Lease, after[1]) || after[0] < 0 {
			t.Errorf("the new lease is %s, the scores are %f", extended.Lease, after)
		}
		if slices.Contains(k.members("pending"), "sent") {
			t.Error("the sent event is pending again")
		}
	})
}

// scores returns when pending events are due.
func scores(t *testing.T, k keys, ids ...string) []float64 {
	t.Helper()
	due := make([]float64, len(ids))
	for i, id := range ids {
		var err error
		due[i], err = k.client.ZScore(redistest.Soon(t), k.key("pending"), id).Result()
		redistest.Must(t, err)
	}
	return due
}

func TestFailureOfAnUntriedEventCountsNoAttempt(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, ctx := newTransactor(t, client, onePartition), redistest.Soon(t)
		store, slot := outbox.NewStore(tr), tr.Keyspace().Slots()[0]
		work := outbox.Work{Lease: time.Hour, BackoffBase: time.Millisecond, Attempts: 2}
		redistest.Must(t, emit(tr, "a", "1"))
		notSent := errors.New("not sent")
		for _, reason := range []error{relay.Later(notSent, time.Millisecond), relay.Unavailable(notSent), relay.Later(notSent, 0)} {
			var taken outbox.Batch
			redistest.Eventually(t, "the event to be due", func() bool {
				var err error
				taken, err = store.Claim(ctx, slot, work)
				redistest.Must(t, err)
				return len(taken.Events) > 0 || taken.Parked > 0
			})
			if taken.Parked > 0 || taken.Events[0].Attempt != 1 {
				t.Fatalf("%v was an attempt: %+v", reason, taken)
			}
			done, err := store.Failed(ctx, taken, work, outbox.Fault{ID: "1", Err: reason})
			wantDone(t, done, err, 1)
		}
		wantCounts(t, store, outbox.Counts{Pending: 1})
	})
}

// TestHistoryKeepsTheLastFiveFailuresUntilASuccess also checks their classes, and that re-arming keeps them.
func TestHistoryKeepsTheLastFiveFailuresUntilASuccess(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, ctx := newTransactor(t, client, onePartition), redistest.Soon(t)
		s, store, slot := keys{t, client, tr}, outbox.NewStore(tr), tr.Keyspace().Slots()[0]
		work := outbox.Work{Lease: time.Hour, BackoffBase: time.Nanosecond, BackoffCap: time.Nanosecond, Attempts: 7}
		redistest.Must(t, emit(tr, "a", "e"))
		for i := range 7 {
			taken, err := store.Claim(ctx, slot, work)
			redistest.Must(t, err)
			done, err := store.Failed(ctx, taken, work, outbox.Fault{ID: "e", Err: fmt.Errorf("failure %d", i)})
			wantDone(t, done, err, 1)
		}
		var lines []string
		for line := range strings.SplitSeq(s.hash("errors")["e"], "\n") {
			at, rest, _ := strings.Cut(line, " ")
			lines = append(lines, rest)
			if len(at) != 13 {
				t.Errorf("%q has no time in ms", line)
			}
		}
		want := []string{"7 exhausted failure 6", "6 failed failure 5", "5 failed failure 4", "4 failed failure 3", "3 failed failure 2"}
		if !slices.Equal(lines, want) {
			t.Errorf("%q", lines)
		}
		if by := s.hash("parked:by"); fmt.Sprint(by) != "map[c:exhausted:1 d::1 t:t:1]" {
			t.Errorf("parked by %v", by)
		}
		if n, err := store.As("alice").Rearm(ctx, slot, "e"); n.Done() != 1 || err != nil {
			t.Fatal(n, err)
		}
		if by := s.hash("parked:by"); len(by) != 0 || s.hash("errors")["e"] == "" {
			t.Errorf("parked by %v, errors %v", by, s.hash("errors"))
		}
		work.Lease = 100 * time.Millisecond
		for range 7 { // each claimer dies
			redistest.Eventually(t, "the next claim", func() bool {
				taken, err := store.Claim(ctx, slot, work)
				redistest.Must(t, err)
				return len(taken.Events) == 1
			})
		}
		redistest.Eventually(t, "it to be parked", func() bool {
			taken, err := store.Claim(ctx, slot, work)
			return err == nil && taken.Parked == 1
		})
		if first, _, _ := strings.Cut(s.hash("errors")["e"], "\n"); !strings.Contains(first, " 7 crashed the lease ran out") {
			t.Errorf("%q", first)
		}
		done, err := store.Sent(ctx, slot, work, "e")
		wantDone(t, done, err, 1)
		for _, name := range []string{"errors", "attempts", "parked:by"} {
			if left := s.hash(name); len(left) != 0 {
				t.Errorf("%s: %v", name, left)
			}
		}
	})
}

func TestSentEventLeavesItsIDItsBodyOrNothing(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, ctx := newTransactor(t, client, onePartition), redistest.Soon(t)
		s, store, slot := keys{t, client, tr}, outbox.NewStore(tr), tr.Keyspace().Slots()[0]
		redistest.Must(t, emit(tr, "a", "1", "2", "3"))
		bodies := s.hash("entries")
		done, err := store.Sent(ctx, slot, outbox.Work{}, "1")
		wantDone(t, done, err, 1)
		done, err = store.Sent(ctx, slot, outbox.Work{KeepSentBodies: true}, "2")
		wantDone(t, done, err, 1)
		left := s.hash("entries")
		if len(left["1"]) != 41 || left["2"][:1] != "=" || left["2"][41:] != bodies["2"] || !slices.Equal(s.members("sent"), []string{"1", "2"}) {
			t.Errorf("%v, sent %v", left, s.members("sent"))
		}
		redistest.Must(t, emit(tr, "a", "1", "2")) // duplicates
		wantCounts(t, store, outbox.Counts{Pending: 1, Sent: 2})
		if n := s.hash("counts")["duplicate"]; n != "2" {
			t.Errorf("%s duplicates", n)
		}
		many := numbered(120)
		redistest.Must(t, emit(tr, "a", many...))
		_, err = store.Sent(ctx, slot, outbox.Work{}, many...)
		redistest.Must(t, err)
		redistest.Must(t, emit(tr, "a", "zz"))
		known := len(s.members("sent"))
		done, err = store.Sent(ctx, slot, outbox.Work{SentRetention: -1}, "3", "zz") // more ids must be removed than one call removes
		wantDone(t, done, err, 1, 1)
		if left := s.hash("entries"); left["zz"] != "" || len(left) != known-100 || len(s.members("sent")) != known-100 {
			t.Errorf("%d of %d ids are left, zz with %q", len(left), known, left["zz"])
		}
		if left := s.hash("entries"); left["3"] != "" || slices.Contains(s.members("sent"), "3") {
			t.Errorf("%v", left)
		}
		redistest.Must(t, emit(tr, "a", "3"))
		y := yard{t, tr, client, store, slot}
		if events, all := y.gauge("events"), y.gauge("enqueued"); events != 1 || all != 125 {
			t.Errorf("%d events of %d", events, all)
		}
	})
}

func TestClaimReturnsTheDestinationThatAnOperatorSet(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, ctx := newTransactor(t, client, onePartition), redistest.Soon(t)
		s, store, slot := keys{t, client, tr}, outbox.NewStore(tr), tr.Keyspace().Slots()[0]
		redistest.Must(t, emit(tr, "a", "1", "2"))
		y := yard{t, tr, client, store, slot}
		y.enqueue(shard.Event{ID: "3", Body: []byte("no message")})
		y.emit("t", "d", "", "4", "5")
		redistest.Must(t, client.HSet(ctx, s.key("routes"), "2", "elsewhere", "3", "elsewhere", "4", "elsewhere").Err())
		taken, err := store.Claim(ctx, slot, outbox.Work{})
		redistest.Must(t, err)
		for _, e := range taken.Events {
			if e.ID == "3" {
				if e.Message != nil || e.Err == nil {
					t.Errorf("%+v", e)
				}
				continue
			}
			if want := map[string]string{"2": "elsewhere", "4": "elsewhere", "5": "d"}[e.ID]; e.Err != nil || e.Message.Destination() != want {
				t.Errorf("%s to %q, %v", e.ID, e.Message.Destination(), e.Err)
			}
		}
		_, err = store.Sent(ctx, slot, outbox.Work{}, "1", "2", "3", "4", "5")
		redistest.Must(t, err)
		if left := s.hash("routes"); len(left) != 0 {
			t.Errorf("%v", left)
		}
	})
}

func TestClaimRemovesIdsWithoutAnEvent(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, ctx := newTransactor(t, client, onePartition), redistest.Soon(t)
		k, store, slot := keys{t, client, tr}, outbox.NewStore(tr), tr.Keyspace().Slots()[0]
		redistest.Must(t, emit(tr, "a", "1"), client.ZAdd(ctx, k.key("pending"), redis.Z{Score: 1, Member: "gone"}).Err())
		taken, err := store.Claim(ctx, slot, outbox.Work{})
		redistest.Must(t, err)
		if taken.Orphans != 1 || len(taken.Events) != 1 || taken.Events[0].ID != "1" {
			t.Errorf("claimed %+v", taken)
		}
		if left := client.ZRange(ctx, k.key("pending"), 0, -1).Val(); !slices.Equal(left, []string{"1"}) {
			t.Errorf("pending: %v", left)
		}
		if counts, err := store.Counts(ctx); err != nil || counts.Totals.Orphans != 1 {
			t.Errorf("%d orphans counted, %v", counts.Totals.Orphans, err)
		}
	})
}

// TestLaneContinuesOnlyIfTheWorkSaysSo parks the head of a lane by a failure, or by a claim after a crash.
func TestLaneContinuesOnlyIfTheWorkSaysSo(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for continues, state := range map[bool]outbox.State{false: outbox.Waiting, true: outbox.Pending} {
			for name, park := range map[string]func(y yard, work outbox.Work){
				"failure": func(y yard, work outbox.Work) {
					work.Lease = time.Hour
					taken, err := y.store.Claim(redistest.Soon(t), y.slot, work)
					redistest.Must(t, err)
					done, err := y.store.Failed(redistest.Soon(t), taken, work, outbox.Fault{ID: "1", Err: message.Permanent(errors.New("no"))})
					wantDone(t, done, err, 1)
				},
				"claim": func(y yard, work outbox.Work) {
					redistest.Eventually(t, "the event to be parked", func() bool {
						taken, err := y.store.Claim(redistest.Soon(t), y.slot, work)
						redistest.Must(t, err)
						return taken.Parked == 1
					})
				},
			} {
				y := newYard(t, client)
				y.emit("t", "", "k", "1", "2")
				park(y, outbox.Work{Attempts: 1, Lease: 100 * time.Millisecond, LaneContinues: continues})
				y.want("1", outbox.Parked)
				if e := y.want("2", state); e.Attempts != 0 {
					t.Errorf("after a %s: %+v", name, e)
				}
			}
		}
	})
}

func TestClaimTakesAtMostTheLimit(t *testing.T) {
	t.Parallel()
	y := newYard(t, redistest.Shared(t).Client(t))
	y.emit("t", "", "", numbered(1103)...)
	for _, c := range []struct{ limit, want int }{{2, 2}, {0, 100}, {1000, 1000}, {5, 1}} {
		taken, err := y.store.Claim(redistest.Soon(t), y.slot, outbox.Work{Limit: c.limit, Lease: time.Hour})
		if err != nil || len(taken.Events) != c.want {
			t.Errorf("limit %d: %d events, want %d; %v", c.limit, len(taken.Events), c.want, err)
		}
	}
}

func TestLaneContinuesBehindAnEventWhoseBodyIsLost(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "", "k", "1", "2")
		redistest.Must(t, client.HDel(redistest.Soon(t), keys{t, client, y.tr}.key("entries"), "1").Err())
		taken, err := y.store.Claim(redistest.Soon(t), y.slot, outbox.Work{})
		if err != nil || taken.Orphans != 1 || len(taken.Events) != 0 {
			t.Errorf("claimed %+v, %v", taken, err)
		}
		y.want("2", outbox.Pending)
	})
}
