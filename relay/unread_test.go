package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

// large returns an event whose body is stored outside of the script.
func large(key, id string) luatx.Event {
	body := fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/s","type":"t","data":%q}`, id, strings.Repeat("x", 10<<10))
	return luatx.Event{ID: id, Key: key, Body: body}
}

// damage replaces the body of a large event by a list. It returns a function that restores the body.
func damage(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor, id string) (restore func()) {
	t.Helper()
	home := link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[0])
	reference, err := client.HGet(t.Context(), home.Key("entries"), id).Result()
	redistest.Must(t, err)
	key := home.BodyKey(reference)
	redistest.Must(t, client.Rename(t.Context(), key, key+":kept").Err())
	redistest.Must(t, client.RPush(t.Context(), key, "no body").Err())
	return func() {
		t.Helper()
		redistest.Must(t, client.Rename(t.Context(), key+":kept", key).Err())
	}
}

func TestEventWhoseBodyHasTheWrongTypeLosesNoAttemptAndDelaysNoOther(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, out := newTransactor(t, client, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1) }), newSink()
		commit(t, tr, "a", large("", "bad"), large("", "good"))
		restore := damage(t, client, tr, "bad")
		var log rig.Lines
		start(t, tr, out, relay.Config{NoInline: true, Attempts: 1, PauseCap: time.Millisecond, SweepInterval: 10 * time.Millisecond, Lease: time.Hour, Logger: log.Logger()})
		redistest.Eventually(t, "the other event to be sent", func() bool { return counts(t, tr).Sent == 1 })
		redistest.Eventually(t, "three claims of the unreadable event", func() bool { return log.Count("event bodies not read") >= 3 })
		if c := counts(t, tr); c.Parked != 0 || out.count("bad") != 0 {
			t.Errorf("%+v, published %v", c, out.times)
		}
		restore()
		redistest.Eventually(t, "both events to be sent", func() bool { return counts(t, tr) == outbox.Counts{Sent: 2} })
	})
}

func TestNextEventOfALaneWhoseBodyCannotBeReadLosesNoAttempt(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, out := newTransactor(t, client, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1) }), newSink()
		commit(t, tr, "a", large("k", "first"), large("k", "second"))
		restore := damage(t, client, tr, "second")
		var log rig.Lines
		start(t, tr, out, relay.Config{NoInline: true, Attempts: 1, PauseCap: time.Millisecond, SweepInterval: 10 * time.Millisecond, Lease: time.Hour, Logger: log.Logger()})
		redistest.Eventually(t, "three claims of the second event", func() bool { return log.Count("event bodies not read") >= 3 })
		restore()
		redistest.Eventually(t, "both events to be sent", func() bool { return counts(t, tr) == outbox.Counts{Sent: 2} })
	})
}

// between is a hook that calls claimed after each claim and before the bodies are read.
type between struct {
	claim   string // the hash of the script
	claimed func()
	fails   atomic.Int64 // number of pipelines that fail without an error of their commands
}

func newBetween(tr *luatx.Transactor, claimed func()) *between {
	b := &between{claimed: claimed}
	for name, sha := range link.Of(tr).Runner.SHAs() {
		if name == "claim" {
			b.claim = sha
		}
	}
	return b
}

func (b *between) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *between) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if slices.Contains(cmd.Args(), any(b.claim)) && err == nil {
			b.claimed()
		}
		return err
	}
}

func (b *between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "get" && b.fails.Add(-1) >= 0 {
			return errors.New("out of order")
		}
		return next(ctx, cmds)
	}
}

func TestEventsWhoseBodiesAHookOfTheClientDoesNotReadLoseNoAttempt(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, out := newTransactor(t, client), newSink()
		hook := newBetween(tr, func() {})
		hook.fails.Store(3)
		client.AddHook(hook)
		commit(t, tr, "a", large("", "1"), large("", "2"))
		start(t, tr, out, relay.Config{NoInline: true, Attempts: 1, PauseCap: time.Millisecond, SweepInterval: 10 * time.Millisecond, Lease: time.Hour})
		redistest.Eventually(t, "both events to be sent", func() bool { return counts(t, tr) == outbox.Counts{Sent: 2} })
		if left := hook.fails.Load(); left >= 0 {
			t.Errorf("%d reads did not fail", left)
		}
	})
}

func TestRelayThatStopsBetweenAClaimAndItsBodiesGivesTheEventsBack(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := newTransactor(t, client)
		commit(t, tr, "a", large("", "1"), large("", "2"))
		ctx, stop := context.WithCancel(redistest.Soon(t))
		defer stop()
		client.AddHook(newBetween(tr, stop))
		cfg := relay.Config{NoInline: true, Attempts: 1, PauseCap: time.Hour, SweepInterval: 10 * time.Millisecond, Lease: time.Hour}
		r, err := relay.New(tr, newSink(), cfg)
		redistest.Must(t, err)
		redistest.Must(t, r.Run(ctx))
		if c := counts(t, tr); c != (outbox.Counts{Pending: 2}) {
			t.Fatalf("after Run: %+v", c)
		}
		start(t, tr, newSink(), cfg)
		redistest.Eventually(t, "another relay to send both at once", func() bool { return counts(t, tr) == outbox.Counts{Sent: 2} })
	})
}
