package repair_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/repair"
)

// run runs a worker until the test ends or stop is called.
func run(t testing.TB, w *repair.Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func TestRunRepairsDamageEveryIntervalAndLogsOneLinePerKind(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s, out := newShop(t, client), &rig.Lines{}
		s.furnish(t)
		s.do(t, "SET", s.key("void"), "v")
		w := newWorker(t, s.tr, repair.Config{Interval: 5 * time.Millisecond, Logger: out.Logger()})
		stop := run(t, w)
		redistest.Eventually(t, "the first round", func() bool { return w.Stats().Rounds > 0 })
		if err := w.Run(t.Context()); err == nil {
			t.Error("it runs twice")
		}
		for turn := range int64(2) {
			s.do(t, "ZADD", s.key("pending"), 1, "x", 1, "y", 1, "z")
			redistest.Eventually(t, "the orphans to be removed", func() bool { return w.Stats().Fixed[repair.Orphan] >= 3*(turn+1) })
		}
		redistest.Eventually(t, "more rounds", func() bool { return w.Stats().Rounds > 3 })
		stop()
		stats := w.Stats()
		if stats.Fixed[repair.Orphan] != 6 || stats.Reported[repair.WrongType] < 3 || stats.Shards < 3 || stats.Errors != 0 || stats.LastRound.IsZero() || stats.Took <= 0 {
			t.Errorf("%+v", stats)
		}
		if out.Count("repair: fixed") != 2 || out.Count("findings=3") != 2 || out.Count("operator needed") < 3 || out.Count("releasing turn failed") > 0 {
			t.Errorf("logged\n%s", out.String())
		}
		if got := named(t, w.Check(redistest.Soon(t))); !slices.Equal(got, []string{"type void"}) {
			t.Errorf("left: %q", got)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.Run(ended); err != nil {
			t.Errorf("it does not run again: %v", err)
		}
	})
}

func TestOneProcessMakesTheRoundAndOthersTakeOverWhenItEnds(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s := newShop(t, client)
		s.furnish(t)
		turn := func(who string, hold, interval, next time.Duration) (bool, time.Duration) {
			turned, err := link.Of(s.tr).Scripts.Turn(redistest.Soon(t), link.Of(s.tr).Scripts.Shard(s.slot), shard.Turning{Owner: who, Hold: hold, Interval: interval, Next: next, At: shard.NoPlace})
			redistest.Must(t, err)
			return turned.Mine, turned.Wait
		}
		w := newWorker(t, s.tr, repair.Config{Interval: time.Hour, Lease: time.Hour})
		stop := run(t, w)
		redistest.Eventually(t, "the first round", func() bool { return w.Stats().Rounds == 1 })
		redistest.Eventually(t, "its end", func() bool {
			mine, wait := turn("another", time.Hour, time.Hour, 0)
			if mine {
				t.Fatal("a second round within the interval")
			}
			return wait <= time.Hour && client.HGet(t.Context(), s.key("repair"), "owner").Err() == redis.Nil //nolint:errorlint // as documented
		})
		stop()
		if mine, _ := turn("another", time.Hour, time.Minute, 0); !mine {
			t.Error("a time further away than the interval counts")
		}
		if mine, wait := turn("a third", time.Hour, time.Minute, 0); mine || wait < 59*time.Minute {
			t.Errorf("two at a time: %t, %v", mine, wait)
		}
		if mine, _ := turn("a third", 0, time.Minute, 0); mine {
			t.Error("one ends the turn of another")
		}
		if mine, _ := turn("another", 50*time.Millisecond, time.Minute, 0); !mine {
			t.Error("the one whose turn it is does not keep it")
		}
		redistest.Eventually(t, "the lease to run out", func() bool { mine, _ := turn("a third", time.Hour, time.Minute, 0); return mine })
		turn("a third", 0, time.Minute, 0)
		if mine, _ := turn("another", time.Hour, time.Minute, 0); !mine {
			t.Error("a turn that was given back is not to be had")
		}
	})
}

func TestTurnBelongsToOneProcessUntilItEndsAndComesBackAfterTheInterval(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		inside := link.Of(newShop(t, client).tr)
		const hold, interval = 10 * time.Minute, time.Hour
		for i, step := range []struct {
			owner      string
			hold, next time.Duration
			at         int
			mine       bool
			least      time.Duration // of the wait
			most       time.Duration
			place      int
		}{
			{"a", 0, 0, 3, false, 0, 0, shard.NoPlace},                     // a process that has no turn ends none, and stores no position
			{"a", hold, 0, shard.NoPlace, true, 0, 0, shard.NoPlace},       // the first turn
			{"b", hold, 0, 5, false, hold / 2, hold, shard.NoPlace},        // another process waits, and stores no position
			{"a", hold, 0, 7, true, 0, 0, shard.NoPlace},                   // the owner extends its turn
			{"a", hold, 0, shard.NoPlace, true, 0, 0, 7},                   // and keeps the position that it has stored
			{"b", 0, time.Minute, 5, false, hold / 2, hold, 7},             // another process cannot end it
			{"a", 0, 30 * time.Minute, 9, true, 0, 0, 7},                   // the owner ends it
			{"b", hold, 0, shard.NoPlace, false, time.Minute, interval, 9}, // the next turn is not due
			{"a", hold, 0, shard.NoPlace, false, time.Minute, interval, 9}, // nor for the former owner
		} {
			got, err := inside.Scripts.Turn(redistest.Soon(t), inside.First, shard.Turning{
				Owner: step.owner, Hold: step.hold, Interval: interval, Next: step.next, At: step.at,
			})
			redistest.Must(t, err)
			if got.Mine != step.mine || got.At != step.place || got.Wait < step.least || got.Wait > step.most {
				t.Fatalf("step %d: %+v, want %+v", i, got, step)
			}
		}
		// A due time beyond the interval comes from another clock or configuration.
		got, err := inside.Scripts.Turn(redistest.Soon(t), inside.First, shard.Turning{Owner: "b", Hold: hold, Interval: time.Minute, At: shard.NoPlace})
		if err != nil || !got.Mine || got.At != 9 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestTurnEndsAndIsDueToTheMillisecondOfTheServersClock(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	inside, start := link.Of(newShop(t, client).tr), time.Now().Truncate(time.Second)
	const ms, interval = time.Millisecond, 20 * time.Millisecond
	for i, step := range []struct {
		at         time.Duration
		owner      string
		hold, next time.Duration
		mine       bool
		wait       time.Duration
	}{
		{0, "a", 10 * ms, 0, true, 0},
		{9 * ms, "b", 10 * ms, 0, false, ms},
		{10 * ms, "b", 10 * ms, 0, true, 0},
		{10 * ms, "b", 0, interval, true, 0},
		{10 * ms, "a", 10 * ms, 0, false, interval},
		{29 * ms, "a", 10 * ms, 0, false, ms},
		{30 * ms, "a", 10 * ms, 0, true, 0},
	} {
		server.SetTime(start.Add(step.at))
		got, err := inside.Scripts.Turn(redistest.Soon(t), inside.First, shard.Turning{
			Owner: step.owner, Hold: step.hold, Interval: interval, Next: step.next, At: shard.NoPlace,
		})
		redistest.Must(t, err)
		if got.Mine != step.mine || got.Wait != step.wait {
			t.Errorf("step %d: %+v, want %+v", i, got, step)
		}
	}
}

func TestSlowWorkerEndsItsRoundAfterATakeover(t *testing.T) {
	t.Parallel()
	proxy, out := redistest.Proxy(t, redistest.Shared(t).Addr()), &rig.Lines{}
	s := newShop(t, redistest.Client(t, proxy.Addr()))
	s.furnish(t)
	w := newWorker(t, s.tr, repair.Config{Interval: time.Hour, Lease: 100 * time.Millisecond, Logger: out.Logger()})
	hold := respproxy.NewHold()
	proxy.Next(1, respproxy.Command("EXISTS"), respproxy.HoldBy(hold)) // the round's look for shards
	stop := run(t, w)
	admin := redistest.Shared(t).Client(t)
	other, err := luatx.New(admin, s.tr.Config())
	redistest.Must(t, err)
	redistest.Eventually(t, "another to take over", func() bool {
		if n, err := admin.Exists(t.Context(), s.key("repair")).Result(); err != nil || n == 0 {
			return false
		}
		turned, err := link.Of(other).Scripts.Turn(redistest.Soon(t), link.Of(other).Scripts.Shard(s.slot), shard.Turning{Owner: "another", Hold: time.Hour, Interval: time.Hour, At: shard.NoPlace})
		redistest.Must(t, err)
		return turned.Mine
	})
	hold.Release()
	redistest.Eventually(t, "the round to end", func() bool { return out.Count("another process has taken it over") == 1 })
	stop()
	if stats := w.Stats(); stats.Rounds != 0 || stats.Steps != 0 {
		t.Errorf("%+v", stats)
	}
}

// TestNextRoundContinuesAtThePositionOfAnInterruptedOne matters if processes are replaced more often than a round takes:
// otherwise the last shards would never be repaired. A process that stops also releases its turn.
func TestNextRoundContinuesAtThePositionOfAnInterruptedOne(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]time.Duration{"process dies": 150 * time.Millisecond, "process stops": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, out, hold := redistest.Proxy(t, redistest.Shared(t).Addr()), &rig.Lines{}, respproxy.NewHold()
			s := newShop(t, redistest.Shared(t).Client(t), func(c *luatx.Config) { c.Keyspace = luatx.Partitions(4).WithPrefix(c.Namespace) })
			slots := s.tr.Keyspace().Slots()
			damage := func() {
				for _, n := range slots {
					redistest.Must(t, s.client.ZAdd(t.Context(), link.Of(s.tr).Scripts.Shard(n).Key("pending"), redis.Z{Score: 1, Member: "gone"}).Err())
				}
			}
			damage()
			redistest.Must(t, s.client.HSet(t.Context(), s.key("repair"), "at", slots[0]).Err())
			third := respproxy.Containing(link.Of(s.tr).Scripts.Shard(slots[2]).Key("pending"))
			proxy.On(func(cmd []string) respproxy.Action {
				switch {
				case strings.ToUpper(cmd[0]) != "EVALSHA":
					return respproxy.Pass()
				case third(cmd):
					return respproxy.HoldBy(hold)
				}
				return respproxy.Delay(60 * time.Millisecond) // longer than a third of the short lease: the worker stores its position
			})
			other, err := luatx.New(redistest.Client(t, proxy.Addr(), func(o *redis.Options) { o.ReadTimeout = time.Second }), s.tr.Config())
			redistest.Must(t, err)
			stop := run(t, newWorker(t, other, repair.Config{Interval: time.Hour, Lease: lease, Logger: slog.New(slog.DiscardHandler)}))
			redistest.Must(t, hold.Wait(redistest.Soon(t)))
			defer hold.Release()

			damage()
			if name == "process stops" {
				stop()
			}
			w := newWorker(t, s.tr, repair.Config{Interval: time.Hour, Lease: time.Hour, Logger: out.Logger()})
			run(t, w)
			redistest.Eventually(t, "a round", func() bool { return w.Stats().Rounds == 1 })
			var order []int
			for _, found := range regexp.MustCompile(`slot (\d+):`).FindAllStringSubmatch(out.String(), -1) {
				n, err := strconv.Atoi(found[1])
				redistest.Must(t, err)
				order = append(order, n)
			}
			if want := slices.Concat(slots[2:], slots[:2]); !slices.Equal(order, want) {
				t.Errorf("repaired in the order %v, want %v", order, want)
			}
		})
	}
}

func TestRoundRetriesFailedShardsWithoutWaitingForTheInterval(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{"a step fails": "EVALSHA", "the look for shards fails": "EXISTS", "the turn is not renewed": "EVALSHA"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
			s := newShop(t, redistest.Client(t, proxy.Addr()), func(c *luatx.Config) { c.Keyspace = luatx.Partitions(4).WithPrefix(c.Namespace) })
			for _, n := range s.tr.Keyspace().Slots() {
				redistest.Must(t, s.client.ZAdd(t.Context(), link.Of(s.tr).Scripts.Shard(n).Key("pending"), redis.Z{Score: 1, Member: "gone"}).Err())
			}
			w := newWorker(t, s.tr, repair.Config{Interval: time.Hour, Lease: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
			fails, passes := respproxy.Containing(link.Of(s.tr).Scripts.Shard(s.tr.Keyspace().Slots()[2]).Key("pending")), int64(0)
			if name == "the turn is not renewed" {
				fails, passes = respproxy.Containing(s.key("repair")), 1
			}
			var calls atomic.Int64
			proxy.On(func(cmd []string) respproxy.Action {
				switch {
				case !strings.EqualFold(cmd[0], command):
					return respproxy.Pass()
				case fails(cmd) && w.Stats().Errors == 0 && calls.Add(1) > passes:
					return respproxy.CutRequest()
				}
				return respproxy.Delay(60 * time.Millisecond) // longer than a third of the lease: the worker renews its turn
			})
			run(t, w)
			redistest.Eventually(t, "a round", func() bool { return w.Stats().Rounds == 1 })
			if stats := w.Stats(); stats.Fixed[repair.Orphan] != 4 || stats.Errors != 1 {
				t.Errorf("%+v", stats)
			}
		})
	}
}

func TestRunSurvivesErrorsAndRepairsAfterThem(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	admin := server.Admin(t)
	redistest.Must(t, admin.Do(t.Context(), "ACL", "SETUSER", "sick", "on", ">secret", "~*", "+@all", "-zscan", "-hscan").Err())
	s := newShop(t, server.Client(t, func(o *redis.Options) { o.Username, o.Password = "sick", "secret" }))
	s.furnish(t)
	s.do(t, "ZADD", s.key("pending"), 1, "x")
	w := newWorker(t, s.tr, repair.Config{Interval: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	run(t, w)
	redistest.Eventually(t, "errors", func() bool { return w.Stats().Errors > 3 })
	redistest.Must(t, admin.Do(t.Context(), "SET", s.key("repair"), "v").Err())
	errs := w.Stats().Errors
	redistest.Eventually(t, "an error about the turn", func() bool { return w.Stats().Errors > errs+1 })
	redistest.Must(t, admin.Do(t.Context(), "DEL", s.key("repair")).Err())
	redistest.Must(t, admin.Do(t.Context(), "ACL", "SETUSER", "sick", "+@all").Err())
	redistest.Eventually(t, "the orphan to be removed", func() bool { return w.Stats().Fixed[repair.Orphan] == 1 })
}

func TestUserOfDocumentationMayRepair(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	granted, err := server.Binary().Rules("repair")
	redistest.Must(t, err)
	s := newShop(t, server.Admin(t))
	args := []any{"ACL", "SETUSER", "repair", "reset", "on", ">secret", "~" + s.tr.Config().Namespace + ":*"}
	for _, rule := range granted {
		args = append(args, rule)
	}
	s.do(t, args...)
	limited, err := luatx.New(server.Client(t, func(o *redis.Options) { o.Username, o.Password = "repair", "secret" }), s.tr.Config())
	redistest.Must(t, err)
	for _, c := range invariants {
		if c.name == "turn of another type" {
			continue
		}
		s.furnish(t)
		for _, command := range c.corrupt {
			s.damage(t, command)
		}
		for _, err := range newWorker(t, limited, repair.Config{}).Fix(redistest.Soon(t)) {
			redistest.Must(t, err)
		}
		for name := range maps.Keys(wantedTypes) {
			s.do(t, "DEL", s.key(name))
		}
	}
	s.furnish(t)
	w := newWorker(t, limited, repair.Config{Interval: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	run(t, w)
	redistest.Eventually(t, "rounds", func() bool { return w.Stats().Rounds > 2 })
	if w.Stats().Errors > 0 {
		t.Errorf("%+v", w.Stats())
	}
}

// published records the events that a relay publishes. Its publisher fails now and then.
type published struct {
	mu    sync.Mutex
	times map[string]int
	calls int
}

func (p *published) Publish(_ context.Context, events []*message.RawMessage) []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	errs := make([]error, len(events))
	for i, e := range events {
		if p.calls++; p.calls%7 == 0 {
			errs[i] = fmt.Errorf("no")
			continue
		}
		p.times[e.ID()]++
	}
	return errs
}

func (p *published) number() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.times)
}

// TestRepairBesideCommitsAndRelaysFindsOnlyRealDamage also removes events from the index meanwhile. All events must be
// published nevertheless.
func TestRepairBesideCommitsAndRelaysFindsOnlyRealDamage(t *testing.T) {
	t.Parallel()
	redistest.Servers(t, func(t *testing.T, client redis.UniversalClient) {
		s := newShop(t, client)
		const callers, each, perTx = 4, 50, 3
		w := newWorker(t, s.tr, repair.Config{Step: 20, Interval: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
		out := &published{times: map[string]int{}}
		startRelay(t, s.tr, out)
		stop := run(t, w)
		commit := func(phase string) {
			var all sync.WaitGroup
			for c := range callers {
				all.Go(func() {
					for i := range each {
						id := fmt.Sprint(phase, c, "-", i, "-")
						if err := s.emit(redistest.Soon(t), id+"a", id+"b", id+"c"); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
		}
		commit("sound")
		redistest.Eventually(t, "all to be published", func() bool { return out.number() == callers*each*perTx })
		redistest.Eventually(t, "a round more", func() bool { return w.Stats().Rounds > 3 })
		if stats := w.Stats(); len(stats.Fixed) > 0 || len(stats.Reported) > 0 || stats.Errors > 0 {
			t.Errorf("found in a sound shard: %+v", stats)
		}

		ended, vandal := make(chan struct{}), sync.WaitGroup{}
		vandal.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-ended:
					return
				default:
					client.ZPopMin(t.Context(), s.key("pending"), 2)
					client.ZAdd(t.Context(), s.key("pending"), redis.Z{Score: 1, Member: fmt.Sprint("ghost", i)})
					client.HDel(t.Context(), s.key("errors"), "no such")
				}
			}
		})
		commit("damaged")
		close(ended)
		vandal.Wait()
		redistest.Eventually(t, "all to be published", func() bool { return out.number() == 2*callers*each*perTx })
		redistest.Eventually(t, "all to be settled", func() bool {
			c, err := outbox.NewStore(s.tr).Counts(t.Context())
			redistest.Must(t, err)
			return c.Pending == 0 && c.Leased == 0 && c.Parked == 0 && c.Sent == 2*callers*each*perTx
		})
		if stats := w.Stats(); stats.Fixed[repair.Unindexed] == 0 || stats.Errors > 0 {
			t.Errorf("%+v", stats)
		}
		stop()
		if got := named(t, w.Check(redistest.Soon(t))); len(got) > 0 {
			t.Errorf("left: %q", got)
		}
	})
}

func startRelay(t testing.TB, tr *luatx.Transactor, p relay.Publisher) {
	t.Helper()
	r, err := relay.New(tr, p, relay.Config{
		SweepInterval: 20 * time.Millisecond, BackoffBase: time.Millisecond, BackoffCap: 10 * time.Millisecond, Attempts: 1000,
	})
	redistest.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
