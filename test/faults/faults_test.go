package faults_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/message/middleware"
)

// TestLostRepliesAndRepeatedRequests holds that an effect is there once, and its caller knows, whatever the
// network does to one request.
func TestLostRepliesAndRepeatedRequests(t *testing.T) {
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
			if got := server.Client(t).Get(ctx, n).Val(); got != "2" {
				t.Errorf("applied %s times, want 2", got)
			}
		})
	}
}

// TestLateCopyOfAnEarlierRun holds the token of its own that each run of a handler commits under. The first
// run's requests are held in the network until its deadline has passed; its token is tombstoned, the handler
// runs again and commits. Then the first run's requests arrive.
func TestLateCopyOfAnEarlierRun(t *testing.T) {
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
	if err := client.ScriptLoad(ctx, "return 1").Err(); err != nil { // the connection is up
		t.Fatal(err)
	}
	if _, err := tr.Transact(ctx, "b", func(tx *luatx.Tx) error { return tx.Emit(luatx.Event{Body: []byte("{}")}) }); err != nil {
		t.Fatal(err) // and the script is loaded
	}
	proxy.On(func(cmd []string) respproxy.Action {
		if runs.Load() == 1 && commitOf(cmd) {
			return respproxy.HoldBy(hold)
		}
		return respproxy.Pass()
	})
	msg := message.New(nil, rig.Order("1"), message.NewAcking(nil, nil))
	if _, err := r.Process(ctx, msg); err != nil {
		t.Fatalf("the second run: %v", err)
	}
	if got := direct.Get(ctx, n).Val(); got != "2" || runs.Load() != 2 {
		t.Errorf("%d runs, the effect is %s", runs.Load(), got)
	}
	before := rig.Executed(t, direct)
	hold.Release()
	redistest.Eventually(t, "the held requests to arrive", func() bool { return rig.Executed(t, direct) >= before+1 })
	if got := direct.Get(ctx, n).Val(); got != "2" {
		t.Errorf("a late copy of the first run took effect: %s", got)
	}
}

// TestNackedMeansNotApplied holds the tombstone: a commit that was not answered is nacked only when no copy of it
// can take effect any more, though it arrives in time.
func TestNackedMeansNotApplied(t *testing.T) {
	t.Parallel()
	proxy, client, direct := rig.Proxied(t)
	ctx := redistest.Soon(t)
	warm := rig.NewTransactor(t, direct)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) {
		*c = warm.Config() // with the same scripts, which the server then has
		c.CommitTimeout = 300 * time.Millisecond
	})
	n := rig.Key(t, tr, "a", "n")
	if _, err := warm.Transact(ctx, "b", func(tx *luatx.Tx) error { return tx.Emit(luatx.Event{Body: []byte("{}")}) }); err != nil {
		t.Fatal(err)
	}
	hold, commit := respproxy.NewHold(), respproxy.Containing(rig.ScriptSHA(t, tr, "commit"))
	proxy.On(func(cmd []string) respproxy.Action {
		if commit(cmd) {
			return respproxy.HoldBy(hold)
		}
		return respproxy.Pass()
	})
	r := rig.NewRouter(t, message.PipeConfig{}, rig.Scripted(t, tr), func(ctx context.Context) ([]*message.Message, error) {
		return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, n))
	})
	msg := message.New(nil, rig.Order("1"), message.NewAcking(nil, nil))
	if _, err := r.Process(ctx, msg); err == nil || msg.Err() == nil {
		t.Fatalf("a commit that is not answered: %v, nacked with %v", err, msg.Err())
	}
	before := rig.Executed(t, direct)
	hold.Release()
	redistest.Eventually(t, "the held requests to arrive", func() bool { return rig.Executed(t, direct) > before })
	if direct.Exists(ctx, n).Val() != 0 {
		t.Error("the commit took effect after its message was nacked")
	}
	if _, err := r.Process(ctx, message.New(nil, rig.Order("1"), message.NewAcking(nil, nil))); err != nil || direct.Get(ctx, n).Val() != "1" {
		t.Errorf("delivered again: %v, applied %s times", err, direct.Get(ctx, n).Val())
	}
}

// The first request is held in the network while its read changes, so the retry conflicts. The read then gets its old
// value back, so nothing but the tombstone refuses the held request.
func TestConflictIsReportedOnlyIfNoCopyCanCommit(t *testing.T) {
	t.Parallel()
	proxy, client, direct := rig.Proxied(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	k, n := rig.Key(t, tr, "a", "k"), rig.Key(t, tr, "a", "n")
	rig.Warm(t, tr)
	set := func(value string) {
		if err := direct.Set(ctx, k, value, 0).Err(); err != nil {
			t.Error(err)
		}
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
	if got := direct.Get(ctx, n).Val(); got != "" {
		t.Errorf("applied %s times after the conflict was reported", got)
	}
}

// TestTooLate holds that a request which the network delivers after its caller has given up changes nothing,
// and that the same id then commits.
func TestTooLate(t *testing.T) {
	t.Parallel()
	proxy, client, direct := rig.Proxied(t)
	ctx := redistest.Soon(t)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.CommitTimeout = 300 * time.Millisecond })
	n := rig.Key(t, tr, "a", "n")
	add := func() (luatx.Result, error) {
		return tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			return luatx.Queued(tx.Pipeline().Incr(ctx, n))
		}, luatx.WithID("1"))
	}
	if _, err := tr.Transact(ctx, "b", func(tx *luatx.Tx) error { return tx.Emit(luatx.Event{Body: []byte("{}")}) }); err != nil {
		t.Fatal(err)
	}
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
	if _, err := add(); !errors.Is(err, luatx.ErrOutcomeUnknown) {
		t.Errorf("a commit that is not answered: %v", err)
	}
	redistest.Eventually(t, "the time by which it had to arrive to pass", func() bool { return time.Since(sent) > 1500*time.Millisecond })
	before := rig.Executed(t, direct)
	holding.Store(false)
	hold.Release()
	redistest.Eventually(t, "the held requests to arrive", func() bool { return rig.Executed(t, direct) > before })
	if direct.Exists(ctx, n).Val() != 0 {
		t.Error("a request that came too late took effect")
	}
	if result, err := add(); err != nil || result.Outcome != luatx.Committed || direct.Get(ctx, n).Val() != "1" {
		t.Errorf("the same id again: %v, %v, effect %s", result, err, direct.Get(ctx, n).Val())
	}
}

// TestSickServer holds that a commit outlasts a server that forgets its scripts, restarts or stands still.
func TestSickServer(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own(), redistest.Config("appendonly yes", "appendfsync always"))
	client := server.Client(t, rig.ShortReads)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	n := rig.Key(t, tr, "a", "n")
	add := func() error {
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error { return luatx.Queued(tx.Pipeline().Incr(ctx, n)) })
		return err
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
		if err := add(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := client.Get(ctx, n).Val(); got != "2" {
		t.Errorf("applied %s times, want 2", got)
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, err := tr.Transact(short, "a", func(tx *luatx.Tx) error { return luatx.Queued(tx.Pipeline().Incr(ctx, n)) }, luatx.WithID("x"))
	if !errors.Is(err, luatx.ErrOutcomeUnknown) {
		t.Errorf("a server that stands still: %v", err)
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error { return luatx.Queued(tx.Pipeline().Incr(ctx, n)) }, luatx.WithID("x")); err != nil {
		t.Errorf("the same id again: %v", err)
	}
	if got := client.Get(ctx, n).Val(); got != "3" {
		t.Errorf("applied %s times, want 3", got)
	}
}
