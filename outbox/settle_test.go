package outbox_test

import (
	"crypto/sha1" //nolint:gosec // as the shard does
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// keys returns the reader of the shard's keys.
func (y yard) keys() keys { return keys{y.t, y.client, y.tr} }

// settleBy settles a batch and compares the results.
func (y yard) settleBy(how shard.Settling, batch []shard.Settlement, want ...string) shard.Settled {
	y.t.Helper()
	scripts := link.Of(y.tr).Scripts
	settled, err := scripts.Settle(redistest.Soon(y.t), scripts.Shard(y.slot), how, batch)
	redistest.Must(y.t, err)
	if !slices.Equal(settled.Done, want) {
		y.t.Errorf("settled %q, want %q", settled.Done, want)
	}
	return settled
}

// gauge returns one of the gauges of the shard.
func (y yard) gauge(name string) int64 {
	y.t.Helper()
	return rig.Count(y.t, y.tr, y.slot, name)
}

// marked returns what the shard remembers of a sent event.
func marked(body []byte) string { return fmt.Sprintf("=%x", sha1.Sum(body)) } //nolint:gosec // as the shard does

func TestOneSettlementRemembersGivenIDsForgetsDerivedOnesAndKeepsFailedEvents(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		body := func(id string) []byte { return fmt.Appendf(nil, `{"id":%q}`, id) }
		var batch []shard.Settlement
		for _, id := range []string{"given1", "derived1", "given2", "derived2", "failed"} {
			given := !strings.HasPrefix(id, "derived")
			y.enqueue(shard.Event{ID: id, Body: body(id), Given: given})
			batch = append(batch, shard.Settlement{ID: id, What: "sent", Body: body(id), Given: given})
		}
		batch[4] = shard.Settlement{ID: "failed", What: "failed", Error: "no"}
		y.settleBy(shard.Settling{Attempts: 9, Retention: time.Hour}, batch, "sent", "sent", "sent", "sent", "failed")
		want := map[string]string{"given1": marked(body("given1")), "given2": marked(body("given2")), "failed": "+" + string(body("failed"))}
		if got := y.keys().hash("entries"); !maps.Equal(got, want) {
			t.Errorf("entries %q, want %q", got, want)
		}
		y.same(y.keys().members("sent"), "given1", "given2")
		y.same(y.keys().members("pending"), "failed")
		assert.Equal(t, y.gauge("events"), 1, "events")
		assert.Equal(t, y.gauge("bytes"), int64(len(want["failed"])), "bytes")
	})
}

// TestBodyThatTheCallerHasIsNotReadAgain gives another body than the one that was committed.
func TestBodyThatTheCallerHasIsNotReadAgain(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for name, prepare := range map[string]func(y yard){
			"alone":                  func(yard) {},
			"beside a scheduled one": func(y yard) { y.enqueue(shard.Event{ID: "at", Body: []byte("{}"), At: time.Now().Add(time.Hour)}) },
			"beside an ordered one":  func(y yard) { y.enqueue(shard.Event{ID: "key", Body: []byte("{}"), Key: "k"}) },
		} {
			y := newYard(t, client)
			y.emit("t", "", "", "1", "2")
			prepare(y)
			other := []byte("another")
			y.settleBy(shard.Settling{Attempts: 9, Retention: time.Hour}, []shard.Settlement{
				{ID: "1", What: "sent", Body: other, Given: true}, {ID: "2", What: "sent", Body: other, Given: true},
			}, "sent", "sent")
			for _, id := range []string{"1", "2"} {
				assert.Equal(t, y.keys().hash("entries")[id], marked(other), "%s: digest of the sent event %s", name, id)
			}
		}
	})
}

func TestSentLargeEventsAreRememberedOnlyIfTheirIDsWereGiven(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		_, err := y.tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
			event := luatx.Event{Data: strings.Repeat("x", 40<<10), Attributes: message.Attributes{"type": "big", "source": "/s"}}
			return errors.Join(tx.Emit(event), tx.Emit(event))
		})
		redistest.Must(t, err)
		derived := slices.Sorted(maps.Keys(y.keys().hash("entries")))
		body := y.want(derived[1], outbox.Pending).Body
		assert.Equal(t, y.gauge("bytes"), int64(2*len(body)), "bytes of derived events")
		y.wantLargeBodies(2)
		y.settleBy(shard.Settling{Attempts: 9, KeepBody: true}, []shard.Settlement{{ID: derived[0], What: "sent"}}, "sent") // and is forgotten at once
		y.wantLargeBodies(1)
		redistest.Must(t, y.emitLarge("1", "2"))
		y.settleBy(shard.Settling{Attempts: 9, Retention: time.Hour}, []shard.Settlement{
			{ID: "1", What: "sent", Body: large("1"), Given: true}, {ID: "2", What: "sent", Body: large("2"), Given: true}, {ID: derived[1], What: "sent", Body: body},
		}, "sent", "sent", "sent")
		y.wantLargeBodies(0)
		if got, want := y.keys().hash("entries"), map[string]string{"1": marked(large("1")), "2": marked(large("2"))}; !maps.Equal(got, want) {
			t.Errorf("entries %.100q, want %q", got, want)
		}
		assert.Equal(t, y.gauge("bytes"), 0, "bytes that are left")
	})
}

func TestBodyThatResemblesAReferenceIsAnOrdinaryOne(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		body := []byte(`{"id":"1","data":"~5 x"}`)
		y.enqueue(shard.Event{ID: "1", Body: body, Given: true})
		y.park("odd", "1")
		assert.Equal(t, y.gauge("parked_bytes"), int64(len(body)+1), "bytes")
		assert.Equal(t, string(y.want("1", outbox.Parked).Body), string(body), "the body")
	})
}

func TestEventIsSettledOnceInABatch(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "", "", "1")
		y.settleBy(shard.Settling{Attempts: 9, Retention: time.Hour}, []shard.Settlement{{ID: "1", What: "sent"}, {ID: "1", What: "failed"}}, "sent", "stale")
		y.want("1", outbox.Sent)
		if failed := y.keys().hash("errors"); len(failed) > 0 {
			t.Errorf("failures of a sent event: %v", failed)
		}
	})
}

func TestAttemptThatIsGivenBackDoesNotCount(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "", "", "1")
		how := shard.Settling{Attempts: 9, Retention: time.Hour}
		for _, c := range []struct {
			what     string
			attempts int // of the event while it is leased
		}{{"back", 1}, {"failed", 1}, {"back", 2}, {"back", 2}, {"failed", 2}, {"back", 3}, {"failed", 3}} {
			lease, _ := y.claim(time.Hour)
			assert.Equal(t, y.want("1", outbox.Leased).Attempts, c.attempts, "attempts before the event is %s", c.what)
			y.settleBy(how, []shard.Settlement{{ID: "1", What: c.what, Lease: lease}}, c.what)
		}
	})
}

func TestSentEventLeavesNothingInAnyIndex(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for _, index := range []string{"attempts", "errors", "routes"} {
			y := newYard(t, client)
			y.emit("t", "", "", "1")
			redistest.Must(t, client.HSet(redistest.Soon(t), y.keys().key(index), "1", "1").Err())
			y.settle("sent", "", "", "", "1")
			if left := y.keys().hash(index); len(left) > 0 {
				t.Errorf("%s: %v", index, left)
			}
		}
		y := newYard(t, client)
		_, err := y.store.Import(redistest.Soon(t), strings.NewReader(`{"aggregate":"a","id":"1","body":{"n":1}}`))
		redistest.Must(t, err)
		y.settle("sent", "", "", "", "1")
		y.same(y.keys().members("parked"))
		assert.Equal(t, y.gauge("parked"), 0, "parked events")
		y.overview()
	})
}

// TestNextEventOfALaneIsLeasedIfItHasAnAttemptLeft counts its earlier attempts, too.
func TestNextEventOfALaneIsLeasedIfItHasAnAttemptLeft(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for lease, leased := range map[time.Duration]bool{0: false, time.Millisecond: true, time.Hour: true} {
			y := newYard(t, client)
			var batch []shard.Settlement
			for _, lane := range []string{"fresh", "tried", "exhausted"} {
				y.emit("t", "", lane, lane+" head", lane)
				batch = append(batch, shard.Settlement{ID: lane + " head", What: "sent"})
			}
			redistest.Must(t, client.HSet(redistest.Soon(t), y.keys().key("attempts"), "tried", 2, "exhausted", 3).Err())
			settled := y.settleBy(shard.Settling{Attempts: 3, Retention: time.Hour, Lease: lease}, batch, "sent", "sent", "sent")
			assert.Equal(t, settled.Heads, 3, "new heads with a lease of %v", lease)
			got, want := map[string]int{}, map[string]int{}
			for _, e := range settled.Promoted {
				got[e.ID] = e.Attempt
			}
			if leased {
				want = map[string]int{"fresh": 1, "tried": 3}
			}
			if !maps.Equal(got, want) {
				t.Errorf("a lease of %v: attempts %v, want %v", lease, got, want)
			}
			for i, due := range scores(t, y.keys(), "fresh", "tried", "exhausted") {
				held := leased && i < 2
				if held && !isLease(settled.Lease, due) || !held && due < 0 {
					t.Errorf("a lease of %v: event %d has the score %f, the lease is %q", lease, i, due, settled.Lease)
				}
				if now := time.Now().UnixMilli(); held && lease == time.Hour && due+1e13 < float64(now+30*60*1000) {
					t.Errorf("event %d is leased until %f, now is %d", i, due+1e13, now)
				}
			}
		}
	})
}

func TestOnlyHeldEventsAreReleasedAtTheEndOfAPause(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	y, now := newYard(t, client), time.Now().Truncate(time.Second)
	server.SetTime(now)
	y.emit("t", "", "", "held", "even", "odd")
	later := float64(now.UnixMilli() + 60_000)
	redistest.Must(t, client.ZAdd(t.Context(), y.keys().key("pending"), redis.Z{Score: later, Member: "even"}, redis.Z{Score: later + 1, Member: "odd"}).Err())
	hold := shard.Settlement{ID: "held", What: "hold", Number: float64(shard.HeldFor.Milliseconds())}
	y.settleBy(shard.Settling{Attempts: 9}, []shard.Settlement{hold}, "back")
	n, err := link.Of(y.tr).Scripts.Unhold(t.Context(), link.Of(y.tr).Scripts.Shard(y.slot)) // in the same millisecond
	redistest.Must(t, err)
	assert.Equal(t, n, 1, "events that were released")
	if got, want := scores(t, y.keys(), "held", "even", "odd"), []float64{float64(now.UnixMilli()), later, later + 1}; !slices.Equal(got, want) {
		t.Errorf("due at %f, want %f", got, want)
	}
}

func TestCancelledEventLeavesNothing(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y, ctx, hour := newYard(t, client), redistest.Soon(t), time.Now().Add(time.Hour)
		application := outbox.NewStore(y.tr) // an operator's cancellation is another script
		y.emit("t", "", "", "1", "2")
		bytes := y.gauge("bytes")
		y.enqueue(shard.Event{ID: "later", Body: []byte("{}"), At: hour})
		done, err := application.Cancel(ctx, "a", "later")
		if !done || err != nil {
			t.Errorf("cancelled: %t, %v", done, err)
		}
		assert.Equal(t, y.gauge("events"), 2, "events")
		assert.Equal(t, y.gauge("bytes"), bytes, "bytes")
		for _, name := range []string{"attempts", "entries"} {
			if _, left := y.keys().hash(name)["later"]; left {
				t.Errorf("it is left in %s", name)
			}
		}
		y.enqueue(shard.Event{ID: "lost", Body: []byte("{}"), At: hour})
		redistest.Must(t, client.HDel(ctx, y.keys().key("entries"), "lost").Err())
		if done, err := application.Cancel(ctx, "a", "lost"); done || err != nil {
			t.Errorf("an event without a body was cancelled: %t, %v", done, err)
		}
	})
}

func TestRearmNeverExceedsTheBytesOfAShard(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		body := []byte(`{"n":1}`)
		y := newYard(t, client, func(c *luatx.Config) { c.OutboxBytes = 3 * len(body) })
		for _, id := range []string{"4", "1", "2", "3"} {
			y.enqueue(shard.Event{ID: id, Body: body})
			if id != "4" {
				y.park("odd", id)
			}
		}
		answers, err := y.store.Rearm(redistest.Soon(t), y.slot, "1", "2", "3")
		wantAnswers(t, answers, err, outbox.Done, outbox.Done, outbox.Full)
		assert.Equal(t, y.gauge("events"), 3, "events")
		assert.Equal(t, y.gauge("bytes"), int64(3*len(body)), "bytes")
	})
}

// TestImportedEventIsDueBesideAnotherLane has a lane that comes later in the alphabet.
func TestImportedEventIsDueBesideAnotherLane(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "", "z", "waits")
		_, err := y.store.Import(redistest.Soon(t), strings.NewReader(`{"aggregate":"a","id":"1","key":"k","body":{"n":1}}`))
		redistest.Must(t, err)
		assert.Equal(t, y.gauge("parked"), 1, "parked events")
		answers, err := y.store.Rearm(redistest.Soon(t), y.slot, "1")
		wantAnswers(t, answers, err, outbox.Done)
		y.want("1", outbox.Pending)
	})
}

func TestSettlementForgetsAtMostAHundredIDs(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y, ids := newYard(t, client), numbered(101)
		redistest.Must(t, emit(y.tr, "a", ids...))
		settle(t, y.tr, y.slot, 0, "sent", ids...)
		assert.Equal(t, len(y.keys().hash("entries")), 1, "ids that are remembered")
		assert.Equal(t, len(y.keys().members("sent")), 1, "ids in the order of their time")
	})
}

func TestBackoffNoLongerDoublesAfterThirtyFailures(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	y, now := newYard(t, client), time.Now().Truncate(time.Second)
	server.SetTime(now)
	y.emit("t", "", "", "1")
	for attempts, want := range map[int]int64{29: 1 << 29, 30: 1 << 30, 31: 1 << 30, 40: 1 << 30} {
		redistest.Must(t, client.HSet(t.Context(), y.keys().key("attempts"), "1", attempts).Err())
		how := shard.Settling{Attempts: 99, Base: 2 * time.Millisecond, Cap: 1000 * 24 * time.Hour}
		y.settleBy(how, []shard.Settlement{{ID: "1", What: "failed", Number: 0.5}}, "failed")
		if got := int64(scores(t, y.keys(), "1")[0]) - now.UnixMilli(); got != want {
			t.Errorf("failure %d: due after %d ms, want %d", attempts+1, got, want)
		}
	}
}

func TestParkedEventIsRearmedWhateverItsBodyBeginsWith(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		for _, body := range []string{"=x", "!x"} {
			y.enqueue(shard.Event{ID: body, Body: []byte(body), Given: true})
			y.settle("parked", "", "odd", "no", body)
			answers, err := y.store.Rearm(redistest.Soon(t), y.slot, body)
			wantAnswers(t, answers, err, outbox.Done)
		}
	})
}

func TestEventWhoseLargeBodyIsLostIsListedWithoutOne(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y, ctx := newYard(t, client), redistest.Soon(t)
		redistest.Must(t, y.emitLarge("1"))
		for name := range y.keys().hash("bodies") {
			redistest.Must(t, client.Del(ctx, y.keys().key("body:"+name)).Err())
		}
		e, _ := y.store.Show(ctx, y.slot, "1") // an event without a body cannot be decoded
		if e.State != outbox.Pending || len(e.Body) > 0 {
			t.Errorf("listed: %+v", e)
		}
	})
}
