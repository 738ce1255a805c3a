package luatxtest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/luatxtest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

// either runs a test on the embedded Redis and on a real one.
func either(t *testing.T, test func(t *testing.T, change func(*luatxtest.Config))) {
	t.Helper()
	for name, server := range map[string]bool{"embedded": false, "server": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, func(c *luatxtest.Config) {
				c.Server = server
				c.Transactor.Keyspace = luatx.Partitions(4)
			})
		})
	}
}

// place commits an order with its event, once for its id.
func place(env *luatxtest.Env, id string) (luatx.Result, error) {
	return env.Transact(env.Context(), "order-"+id, func(tx *luatx.Tx) error {
		key, err := tx.Key("placed")
		if err != nil {
			return err
		}
		if err := luatx.Queued(tx.Pipeline().Incr(env.Context(), key)); err != nil {
			return err
		}
		return tx.Emit(luatx.Event{ID: "placed-" + id, Body: []byte(
			`{"specversion":"1.0","id":"placed-` + id + `","type":"order.placed","source":"/shop","subject":"` + id + `","destination":"bank","data":{"id":"` + id + `","total":5}}`)})
	}, luatx.WithID("place-"+id))
}

// placed returns how often an order took effect.
func placed(t testing.TB, env *luatxtest.Env, id string) string {
	t.Helper()
	key, err := env.Keyspace().Key("order-"+id, "placed")
	redistest.Must(t, err)
	return env.Client.Get(redistest.Soon(t), key).Val()
}

// TestNextProcessCompletesTheWorkOfACrashOnce crashes a process at each point.
func TestNextProcessCompletesTheWorkOfACrashOnce(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, change func(*luatxtest.Config)) {
		for _, c := range []struct {
			point  luatxtest.Point
			effect string
			again  luatx.Outcome
		}{
			{luatxtest.BeforeCommit, "", luatx.Committed},
			{luatxtest.AfterCommit, "1", luatx.Duplicate},
		} {
			t.Run(string(c.point), func(t *testing.T) {
				t.Parallel()
				env := luatxtest.New(t, change)
				env.Crash(c.point)
				if _, err := place(env, "1"); !errors.Is(err, context.Canceled) {
					t.Errorf("the process lives: %v", err)
				}
				next := env.Restart()
				if got := placed(t, next, "1"); got != c.effect {
					t.Errorf("%q after the crash, want %q", got, c.effect)
				}
				result, err := place(next, "1")
				if err != nil || result.Outcome != c.again || placed(t, next, "1") != "1" {
					t.Errorf("again: %v, %v", result.Outcome, err)
				}
				luatxtest.RequireEmitted(t, next.Transactor, luatxtest.Want{ID: "placed-1"})
			})
		}
	})
}

// TestNextRelayPublishesAfterACrash crashes the first relay at each point.
func TestNextRelayPublishesAfterACrash(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, change func(*luatxtest.Config)) {
		for point, want := range map[luatxtest.Point]int{luatxtest.AfterClaim: 1, luatxtest.BeforeSettle: 2, luatxtest.AfterSettle: 1} {
			t.Run(string(point), func(t *testing.T) {
				t.Parallel()
				env := luatxtest.New(t, change)
				var mu sync.Mutex
				published := 0
				run := func(env *luatxtest.Env) (done chan error) {
					r, err := relay.New(env.Transactor, relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
						mu.Lock()
						defer mu.Unlock()
						published += len(events)
						return nil
					}), relay.Config{NoInline: true, SweepInterval: 10 * time.Millisecond, Lease: 300 * time.Millisecond})
					redistest.Must(t, err)
					done = make(chan error, 1)
					go func() { done <- r.Run(env.Context()) }()
					return done
				}
				_, err := place(env, "1")
				redistest.Must(t, err)
				env.Crash(point)
				redistest.Must(t, <-run(env))
				next := env.Restart()
				ctx, done := next.Context(), run(next)
				redistest.Eventually(t, "the event to be sent", func() bool {
					counts, err := outbox.NewStore(next.Transactor).Counts(ctx)
					return err == nil && counts.Sent == 1 && counts.Pending == 0
				})
				next.Restart()
				redistest.Must(t, <-done)
				if published != want {
					t.Errorf("published %d times, want %d", published, want)
				}
			})
		}
	})
}

// TestCommitTakesEffectOnceWithEachFault also checks that the caller gets the outcome.
func TestCommitTakesEffectOnceWithEachFault(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, change func(*luatxtest.Config)) {
		for fault, want := range map[luatxtest.Fault]luatx.Outcome{
			luatxtest.LoseRequest: luatx.Committed, luatxtest.LoseReply: luatx.Replayed, luatxtest.Repeat: luatx.Committed,
		} {
			t.Run(string(fault), func(t *testing.T) {
				t.Parallel()
				env := luatxtest.New(t, change)
				env.Disturb(fault)
				if result, err := place(env, "1"); err != nil || result.Outcome != want || placed(t, env, "1") != "1" {
					t.Errorf("%v, %v, %s times", result.Outcome, err, placed(t, env, "1"))
				}
			})
		}
	})
}

func TestAdvanceMovesEverythingThatDependsOnTime(t *testing.T) {
	t.Parallel()
	env := luatxtest.New(t, func(c *luatxtest.Config) { c.Transactor.Keyspace = luatx.Partitions(2) })
	ctx := redistest.Soon(t)
	_, err := env.Enqueue(ctx, "a", luatx.Event{ID: "later", At: env.Now().Add(time.Hour), Body: []byte(`{"specversion":"1.0","id":"later","type":"t","source":"/s"}`)})
	redistest.Must(t, err)
	due := func() []string {
		found, err := outbox.NewStore(env.Transactor).FindPending(ctx, 10)
		redistest.Must(t, err)
		var ids []string
		for _, e := range found {
			ids = append(ids, e.ID)
		}
		return ids
	}
	if ids := due(); len(ids) > 0 {
		t.Errorf("%v are due too early", ids)
	}
	before := env.Now()
	env.Advance(time.Hour + time.Second)
	if ids := due(); !slices.Equal(ids, []string{"later"}) {
		t.Errorf("%v are due", ids)
	}
	if moved := env.Now().Sub(before); moved < time.Hour+time.Second || moved > time.Hour+time.Minute {
		t.Errorf("the clock has moved by %v", moved)
	}
	for range 3 {
		if result, err := place(env, "1"); err != nil || result.Outcome != luatx.Committed {
			t.Errorf("%v, %v", result.Outcome, err)
		}
		if result, err := place(env, "1"); err != nil || result.Outcome != luatx.Duplicate {
			t.Errorf("%v, %v", result.Outcome, err)
		}
		for range 2 { // the inbox forgets an id in the second rotation, and commits rotate it
			env.Advance(env.Config().Retention)
			_, err := env.Transact(ctx, "order-1", func(*luatx.Tx) error { return nil }, luatx.WithID(rand.Text()))
			redistest.Must(t, err)
		}
		env = env.Restart()
	}
	for text, call := range map[string]func(env *luatxtest.Env){
		"goes forward": func(env *luatxtest.Env) { env.Advance(-1) },
		"no point is":  func(env *luatxtest.Env) { env.Crash("x") },
		"no fault is":  func(env *luatxtest.Env) { env.Disturb("x") },
	} {
		if got := failing(t, func(tb testing.TB) { tb.Helper(); call(luatxtest.New(tb)) }); !strings.Contains(got, text) {
			t.Errorf("%q, want %q", got, text)
		}
	}
}

func TestRequireEmittedFindsEventsAndReportsMissingOnes(t *testing.T) {
	t.Parallel()
	env := luatxtest.New(t, func(c *luatxtest.Config) { c.Transactor.Keyspace = luatx.Partitions(4) })
	luatxtest.RequireNothingEmitted(t, env.Transactor)
	for _, id := range []string{"1", "2"} {
		_, err := place(env, id)
		redistest.Must(t, err)
	}
	total := map[string]any{"id": "2", "total": 5}
	found := luatxtest.RequireEmitted(t, env.Transactor, luatxtest.Want{Type: "order.placed"}, luatxtest.Want{Data: total})
	if found[0].ID != "placed-1" || found[1].ID != "placed-2" { // the first want leaves its match to the second
		t.Errorf("found %s and %s", found[0].ID, found[1].ID)
	}
	luatxtest.RequireEmitted(t, env.Transactor)
	luatxtest.RequireEmitted(t, env.Transactor, luatxtest.Want{
		ID: "placed-1", Type: "order.placed", Source: "/shop", Subject: "1", Destination: "bank", Match: message.MatchType("order.placed"),
	})
	for _, w := range []luatxtest.Want{
		{ID: "placed-3"},
		{Type: "x"},
		{Source: "x"},
		{Subject: "x"},
		{Destination: "x"},
		{Key: "x"},
		{Data: map[string]any{"id": "2"}},
		{Data: func() {}},
		{Match: message.MatchType("x")},
	} {
		got := failing(t, func(tb testing.TB) { tb.Helper(); luatxtest.RequireEmitted(tb, env.Transactor, w) })
		if !strings.Contains(got, "no event for want 0: "+w.String()) || !strings.Contains(got, "placed-1 type \"order.placed\"") {
			t.Errorf("want %s: %q", w, got)
		}
	}
	three := []luatxtest.Want{{}, {}, {}}
	if got := failing(t, func(tb testing.TB) { tb.Helper(); luatxtest.RequireEmitted(tb, env.Transactor, three...) }); !strings.Contains(got, "want 2: any event") {
		t.Errorf("three of two: %q", got)
	}
	if got := failing(t, func(tb testing.TB) { tb.Helper(); luatxtest.RequireNothingEmitted(tb, env.Transactor) }); !strings.Contains(got, "placed-2") {
		t.Errorf("nothing: %q", got)
	}
}

func TestCrashAndDisturbFindACommitOfAFrequentPlan(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, change func(*luatxtest.Config)) {
		env := luatxtest.New(t, change)
		for n := range 300 { // a plan is compiled after 100
			if _, err := place(env, strconv.Itoa(n)); err != nil {
				t.Fatal(err)
			}
		}
		env.Disturb(luatxtest.LoseReply)
		if result, err := place(env, "last"); err != nil || result.Outcome != luatx.Replayed {
			t.Errorf("%v, %v after a lost reply, want replayed", result.Outcome, err)
		}
		env.Crash(luatxtest.BeforeCommit)
		if _, err := place(env, "crash"); !errors.Is(err, context.Canceled) {
			t.Errorf("the process lives: %v", err)
		}
	})
}
