package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/message/middleware"
)

func TestEffectIsAppliedOnceDespiteAnyFaultOfARequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault respproxy.Action
		want  luatx.Outcome
	}{
		"reply lost, connection cut": {respproxy.CutReply(), luatx.Replayed},
		"reply lost in silence":      {respproxy.DropReply(), luatx.Replayed},
		"half a reply":               {respproxy.SplitReply(), luatx.Replayed},
		"request lost":               {respproxy.DropRequest(), luatx.Committed},
		"request cut":                {respproxy.SplitRequest(), luatx.Committed},
		"request twice":              {respproxy.Duplicate(), luatx.Committed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			proxy := redistest.Proxy(t, server.Addr())
			client := redistest.Client(t, proxy.Addr(), rig.ShortReads)
			ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
			n := rig.Key(t, tr, "a", "n")
			var count *redis.IntCmd
			add := func() (luatx.Result, error) {
				return tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
					count = tx.Pipeline().Incr(ctx, n)
					return nil
				})
			}
			if _, err := add(); err != nil { // loads the script
				t.Fatal(err)
			}
			proxy.Next(1, respproxy.Command("EVALSHA"), c.fault)
			result, err := add()
			if err != nil || result.Outcome != c.want {
				t.Errorf("%v, %v; want %v", result, err, c.want)
			}
			if c.want == luatx.Replayed && !errors.Is(count.Err(), luatx.ErrRepliesLost) || c.want == luatx.Committed && count.Val() != 2 {
				t.Errorf("the command answers %v", count)
			}
			assert.Equal(t, server.Client(t).Get(ctx, n).Val(), "2", "applied")
		})
	}
}

// TestLateCopyOfAnEarlierRunChangesNothing delays the first run's requests until its deadline has passed. Its token is
// tombstoned, and the handler runs again, with its own token, and commits. Then the first run's requests arrive.
func TestLateCopyOfAnEarlierRunChangesNothing(t *testing.T) {
	t.Parallel()
	proxy, client, direct := rig.Proxied(t)
	ctx := redistest.Soon(t)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.CommitTimeout = time.Second })
	n := rig.Key(t, tr, "a", "n")
	commit := rig.ScriptSHA(t, tr, "commit")

	var runs atomic.Int64
	hold, commitOf := respproxy.NewHold(), respproxy.Containing(commit)
	mw := message.Chain(middleware.Retry(middleware.RetryConfig{MaxAttempts: 2}), rig.Scripted(t, tr))
	r := rig.NewRouter(t, message.PipeConfig{}, mw, func(ctx context.Context) ([]*message.Message, error) {
		runs.Add(1)
		return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).IncrBy(ctx, n, runs.Load()))
	})
	redistest.Must(t, client.ScriptLoad(ctx, "return 1").Err())
	rig.Warm(t, tr)
	proxy.On(func(cmd []string) respproxy.Action {
		if runs.Load() == 1 && commitOf(cmd) {
			return respproxy.HoldBy(hold)
		}
		return respproxy.Pass()
	})
	msg := rig.Delivered("1")
	if _, err := r.Process(ctx, msg); err != nil {
		t.Fatalf("the second run: %v", err)
	}
	if got := direct.Get(ctx, n).Val(); got != "2" || runs.Load() != 2 {
		t.Errorf("%d runs, the effect is %s", runs.Load(), got)
	}
	before := rig.Executed(t, direct)
	hold.Release()
	redistest.Eventually(t, "the held requests to arrive", func() bool { return rig.Executed(t, direct) >= before+1 })
	assert.Equal(t, direct.Get(ctx, n).Val(), "2", "applied, with a late copy of the first run")
}

// The first request is delayed while its read changes, so the retry conflicts. The read then gets its old value back, so
// that only the tombstone rejects the delayed request.
func TestConflictIsReportedOnlyIfNoCopyCanCommit(t *testing.T) {
	t.Parallel()
	proxy, client, direct := rig.Proxied(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	k, n := rig.Key(t, tr, "a", "k"), rig.Key(t, tr, "a", "n")
	rig.Warm(t, tr)
	set := func(value string) {
		rig.NoError(t, direct.Set(ctx, k, value, 0).Err())
	}
	set("old")
	var sent atomic.Bool
	hold, commit := respproxy.NewHold(), respproxy.Containing(rig.ScriptSHA(t, tr, "commit"))
	proxy.On(func(cmd []string) respproxy.Action {
		if !commit(cmd) || !sent.CompareAndSwap(false, true) {
			return respproxy.Pass()
		}
		set("new")
		return respproxy.HoldBy(hold)
	})
	runs, errStop := 0, errors.New("stop")
	_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		if runs++; runs > 1 {
			set("old")
			return errStop
		}
		if err := tx.Read().Get(ctx, k).Err(); err != nil {
			return err
		}
		return luatx.Queued(tx.Pipeline().Incr(ctx, n))
	})
	if !errors.Is(err, errStop) || runs != 2 {
		t.Fatalf("%d runs, %v; want a conflict and another run", runs, err)
	}
	before := rig.Executed(t, direct)
	hold.Release()
	redistest.Eventually(t, "the held request to arrive", func() bool { return rig.Executed(t, direct) > before })
	assert.Equal(t, direct.Get(ctx, n).Val(), "", "applied after the conflict was reported")
}

// The first request is delayed while another transaction fills the outbox, so the retry finds it full. The outbox is then
// emptied, so that only the tombstone rejects the delayed request.
func TestFullOutboxIsReportedOnlyIfNoCopyCanCommit(t *testing.T) {
	t.Parallel()
	proxy, client, direct := rig.Proxied(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client, func(c *luatx.Config) { c.OutboxCapacity = 1 })
	other := rig.NewTransactor(t, direct, func(c *luatx.Config) { c.OutboxCapacity, c.Namespace = 1, tr.Config().Namespace })
	n := rig.Key(t, tr, "a", "n")
	rig.Warm(t, tr)
	add := func(tr *luatx.Transactor, id string) error {
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			return errors.Join(luatx.Queued(tx.Pipeline().Incr(ctx, n)), tx.Emit(luatx.Event{ID: id, Body: []byte(`{"specversion":"1.0","id":"e","source":"s","type":"t"}`)}))
		})
		return err
	}
	var sent atomic.Bool
	hold, commit := respproxy.NewHold(), respproxy.Containing(rig.ScriptSHA(t, tr, "commit"))
	proxy.On(func(cmd []string) respproxy.Action {
		if !commit(cmd) || !sent.CompareAndSwap(false, true) {
			return respproxy.Pass()
		}
		rig.NoError(t, add(other, "first"))
		return respproxy.HoldBy(hold)
	})
	if err := add(tr, "second"); !errors.Is(err, luatx.ErrOutboxFull) {
		t.Fatalf("error is %v, want a full outbox", err)
	}
	shard := link.Of(tr).Scripts.Shard(slot.OfTag("a"))
	for _, name := range []string{"entries", "pending", "counts"} {
		rig.NoError(t, direct.Del(ctx, shard.Key(name)).Err())
	}
	before := rig.Executed(t, direct)
	hold.Release()
	redistest.Eventually(t, "the held request to arrive", func() bool { return rig.Executed(t, direct) > before })
	assert.Equal(t, direct.Get(ctx, n).Val(), "1", "applied, with the transaction that was refused")
}

func TestRequestDeliveredTooLateChangesNothingAndItsIDCommitsLater(t *testing.T) {
	t.Parallel()
	proxy, client, direct := rig.Proxied(t)
	ctx := redistest.Soon(t)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.CommitTimeout = 300 * time.Millisecond })
	n := rig.Key(t, tr, "a", "n")
	cfg := tr.Config()
	cfg.CommitTimeout = 0
	patient, err := luatx.New(client, cfg)
	redistest.Must(t, err)
	rig.Warm(t, tr)
	hold := respproxy.NewHold()
	var holding atomic.Bool
	holding.Store(true)
	proxy.On(func(cmd []string) respproxy.Action {
		if holding.Load() && strings.EqualFold(cmd[0], "evalsha") {
			return respproxy.HoldBy(hold)
		}
		return respproxy.Pass()
	})
	sent := time.Now()
	assert.Is(t, assert.ErrOf(tr.Transact(ctx, "a", rig.Incr, luatx.WithID("1"))), luatx.ErrOutcomeUnknown, "a commit that is not answered")
	redistest.Eventually(t, "the time by which it had to arrive to pass", func() bool { return time.Since(sent) > 1500*time.Millisecond })
	before := rig.Executed(t, direct)
	holding.Store(false)
	hold.Release()
	redistest.Eventually(t, "the held requests to arrive", func() bool { return rig.Executed(t, direct) > before })
	assert.Equal(t, direct.Exists(ctx, n).Val(), 0, "effects of a request that came too late")
	if result, err := patient.Transact(ctx, "a", rig.Incr, luatx.WithID("1")); err != nil || result.Outcome != luatx.Committed || direct.Get(ctx, n).Val() != "1" {
		t.Errorf("the same id again: %v, %v, effect %s", result, err, direct.Get(ctx, n).Val())
	}
}

func TestCommitSurvivesAServerThatForgetsScriptsRestartsOrPauses(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own(), redistest.Config("appendonly yes", "appendfsync always"))
	client := server.Client(t, rig.ShortReads)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	n := rig.Key(t, tr, "a", "n")
	add := func() error {
		return assert.ErrOf(tr.Transact(ctx, "a", rig.Incr))
	}
	for name, fault := range map[string]func() error{
		"script flush": func() error { return server.Admin(t).ScriptFlush(ctx).Err() },
		"restart": func() error {
			if err := server.Kill(); err != nil {
				return err
			}
			go func() { _ = server.Restart(ctx) }()
			return nil
		},
	} {
		if err := fault(); err != nil {
			t.Fatal(name, err)
		}
		assert.NoError(t, add(), "%s", name)
	}
	assert.Equal(t, client.Get(ctx, n).Val(), "2", "applied")
	redistest.Must(t, server.Pause())
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, err := tr.Transact(short, "a", rig.Incr, luatx.WithID("x"))
	assert.Is(t, err, luatx.ErrOutcomeUnknown, "a commit on a stopped server")
	redistest.Must(t, server.Resume())
	assert.NoError(t, assert.ErrOf(tr.Transact(ctx, "a", rig.Incr, luatx.WithID("x"))), "the same id again")
	assert.Equal(t, client.Get(ctx, n).Val(), "3", "applied")
}

// seed returns a random seed, or LUATX_SEED, and logs it.
func seed(t testing.TB) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(os.Getenv("LUATX_SEED"), 10, 64)
	if err != nil {
		n = rand.Uint64()
	}
	t.Logf("LUATX_SEED=%d", n)
	return n
}

// TestEveryEffectIsAppliedOnceInAChaoticNetwork loses, repeats, delays and cuts requests and replies at random. Every caller
// must get the correct result. Callers that give up early may get an unknown outcome.
func TestEveryEffectIsAppliedOnceInAChaoticNetwork(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.Proxy(t, server.Addr())
	through := redistest.Client(t, proxy.Addr(), rig.ShortReads)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	l := newLoad(t, rig.NewTransactor(t, through), "a", "b", "c", "d", "e")
	chaos := respproxy.Chaos{
		Seed:        seed(t),
		DropRequest: .04, DropReply: .05, Cut: .06, Duplicate: .06, Delay: .08, Silent: .01, MaxDelay: 30 * time.Millisecond,
	}
	stop := proxy.Chaos(chaos)
	const workers = 20
	each := 50
	if verifying() {
		each = 1000
	}
	var running sync.WaitGroup
	for w := range workers {
		rng := rand.New(rand.NewPCG(chaos.Seed, uint64(w)))
		running.Go(func() {
			for i := range each {
				aggregate, id := l.aggregates[i%len(l.aggregates)], fmt.Sprintf("%d-%d", w, i)
				limit, end := ctx, context.CancelFunc(func() {})
				switch i % 4 {
				case 0: // without an id
					id = ""
				case 1: // shared with another worker, which uses it at the same time
					id = fmt.Sprintf("shared-%d-%d", w/2, i)
				case 2: // gives up early
					limit, end = context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(10*time.Millisecond))))
				}
				l.call(limit, fmt.Sprintf("call-%d-%d", w, i), aggregate, id)
				end()
			}
		})
	}
	running.Wait()
	stop()
	_ = through.Close() // requests in flight still arrive
	redistest.Eventually(t, "the network to be empty", func() bool { return proxy.Connections() == 0 })

	n := l.audit(ctx, server.Client(t), func(*call) bool { return false })
	t.Log(n)
	for _, c := range l.calls {
		if c.err != nil && !c.overdue {
			t.Errorf("%s: an error in time: %v", c.name, c.err)
		}
	}
	if n.replayed == 0 || n.duplicate == 0 || n.failed+n.unknown == 0 {
		t.Error("the network was too kind for this test")
	}
}

// TestStackAppliesEachMessageOnceInAChaoticNetwork delivers messages until each is acked. A nacked message must not be applied.
// In the end each message and its event is applied once, and none is pending.
func TestStackAppliesEachMessageOnceInAChaoticNetwork(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	past, proxy := server.Client(t), redistest.Proxy(t, server.Addr())
	through := redistest.Client(t, proxy.Addr(), rig.ShortReads)
	ctx := redistest.Soon(t)
	// Nothing checks the server before the first commit: a check has no more time than a commit, which repeats it.
	tr := rig.NewUnchecked(t, through, func(c *luatx.Config) { c.CommitTimeout = 100 * time.Millisecond })
	in := rig.NewInput(t, past, rig.Key(t, tr, "a", "orders"))
	effects := rig.Key(t, tr, "a", "effects")
	r := rig.NewRouter(t, message.PipeConfig{}, rig.Scripted(t, tr), func(ctx context.Context) ([]*message.Message, error) {
		msg, _ := message.MessageFromContext(ctx)
		sold := message.New("sold", message.Attributes{"type": "sold", "source": "/shop"}, nil)
		return []*message.Message{sold}, luatx.Queued(luatx.CmdableFromContext(ctx, through).HIncrBy(ctx, effects, msg.ID(), 1))
	})
	const workers, each = 10, 20
	var messages [workers][]*message.Message
	for w := range workers {
		for i := range each {
			messages[w] = append(messages[w], in.Deliver("c", rig.Order(fmt.Sprintf("%d-%d", w, i))))
		}
	}
	stop := proxy.Chaos(respproxy.Chaos{Seed: seed(t), DropRequest: .05, DropReply: .1, Cut: .05, Duplicate: .05, Delay: .05, Silent: .04})
	var nacked, unknown atomic.Int64
	var running sync.WaitGroup
	for w := range workers {
		running.Go(func() {
			for _, msg := range messages[w] {
				for _, err := r.Process(ctx, msg); err != nil; _, err = r.Process(ctx, msg) {
					nacked.Add(1)
					if errors.Is(err, luatx.ErrOutcomeUnknown) {
						unknown.Add(1)
					} else if past.HExists(ctx, effects, msg.ID()).Val() {
						t.Errorf("%s was nacked and applied: %v", msg.ID(), err)
					}
					msg = in.Message("c", rig.EntryOf(t, msg), rig.Order(msg.ID()))
				}
			}
		})
	}
	running.Wait()
	stop()
	t.Logf("%d nacked, %d of them of unknown outcome", nacked.Load(), unknown.Load())
	applied := past.HGetAll(ctx, effects).Val()
	for id, times := range applied {
		assert.Equal(t, times, "1", "%s: applied", id)
	}
	events := past.ZCard(ctx, link.Of(tr).Scripts.Shard(slot.OfTag("a")).Key("pending")).Val()
	if len(applied) != workers*each || events != workers*each || in.Pending() != 0 {
		t.Errorf("of %d messages %d are applied, %d have an event, %d are pending", workers*each, len(applied), events, in.Pending())
	}
}

func TestMain(m *testing.M) { redistest.Main(m) }
